"""The published "average" of Waterbirds weighs groups by their shares of the training images."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dgbench
from dgbench.records.predictions import PREDICTION_FILE, schema
from dgbench.reports.slices.errors.adjusted import adjusted_averages
from dgbench.reports.slices.errors.images import Counts, EnvImages, macro_f1
from dgbench.reports.slices.errors.tables import overall_table
from tests.complaints import refused

#: training images of Waterbirds by class and background (Sagawa et al., 2020), and tested images
#: and right ones here
TRAINING = {
    "y=land, place=land": 3498,
    "y=land, place=water": 184,
    "y=water, place=land": 56,
    "y=water, place=water": 1057,
}
TESTED = {"y=land, place=land": (100, 99), "y=land, place=water": (100, 51),
    "y=water, place=land": (100, 52),
          "y=water, place=water": (100, 98)}  # fmt: skip


def predictions() -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    true, predicted, place = [], [], []
    for name, (n, right) in TESTED.items():
        y, where = (part.split("=")[1] for part in name.split(", "))
        other = {"land": "water", "water": "land"}[y]
        true += [y] * n
        predicted += [y] * right + [other] * (n - right)
        place += [where] * n
    return np.array(true), np.array(predicted), {"y": np.array(true), "place": np.array(place)}


def test_groups_weigh_as_in_training() -> None:
    true, predicted, groups = predictions()
    frame = dgbench.score(true, predicted, groups["place"], groups=groups, training_groups=TRAINING)
    accuracy = np.array([right / n for n, right in TESTED.values()])
    images = np.array(list(TRAINING.values()))
    measures = frame.loc["measure"]["error"]
    assert measures["adjusted_average"] == pytest.approx(1 - accuracy @ images / images.sum())
    assert 100 * (1 - measures["adjusted_average"]) == pytest.approx(96.4, abs=0.1)
    assert measures["overall"] == pytest.approx(0.25), "75.0 where the published average is 96.4"


def test_absent_where_shares_are_not_known() -> None:
    true, predicted, groups = predictions()
    frame = dgbench.score(true, predicted, groups["place"], groups=groups)
    assert "adjusted_average" not in frame.loc["measure"].index


def test_a_group_that_is_not_tested_has_a_reason() -> None:
    true, predicted, groups = predictions()
    more = {**TRAINING, "y=emu, place=land": 5}
    line = dgbench.score(true, predicted, groups["place"], groups=groups, training_groups=more).loc[
        "measure"
    ]
    assert np.isnan(line.loc["adjusted_average", "error"])
    assert line.loc["adjusted_average", "reason"] == "trained on, but not tested: y=emu, place=land"


def test_what_fits_no_group() -> None:
    true, predicted, groups = predictions()
    with refused(
        "training_groups names .*land.*none of the groups; choose from .*y=land, place=land"
    ):
        dgbench.score(true, predicted, groups["place"], groups=groups, training_groups={"land": 1})
    with refused("training_groups counts .* of groups, and groups is not given; give groups"):
        dgbench.score(true, predicted, groups["place"], training_groups=TRAINING)
    with refused("training_groups.* is no mapping from groups to numbers"):
        dgbench.score(true, predicted, groups["place"], groups=groups, training_groups=[1, 2])


#: group -> training images, published test images (Sagawa et al., 2020), and of these those that a
#: model gets right
PUBLISHED = {
    ("landbird", "land"): (3498, 2255, 2238),
    ("landbird", "water"): (184, 2255, 1075),
    ("waterbird", "land"): (56, 642, 390),
    ("waterbird", "water"): (1057, 642, 642),
}
BIRDS = ["landbird", "waterbird"]
OF_TRAINING: dict[str, dict[str, dict[str, int]]] = {"place": {
    place: {bird: PUBLISHED[bird, place][0] for bird in BIRDS} for place in ("land", "water")
}}  # fmt: skip


def published_images() -> list[EnvImages]:
    """The test images of Waterbirds, by background."""
    tested = []
    for place in ("land", "water"):
        frames = []
        for label, bird in enumerate(BIRDS):
            _, n, fine = PUBLISHED[bird, place]
            right = np.arange(n) < fine
            frames.append(pd.DataFrame({
                "image": [f"{bird}/{i}" for i in range(n)], "label": label,
                "predicted": np.where(right, label, 1 - label), "right": right, "confidence": 0.9,
                "weight": 1.0, "attribute.place": place,
            }))  # fmt: skip
        tested.append(EnvImages(f"test_{place}", pd.concat(frames, ignore_index=True), None))
    return tested


def overall_of(training: dict[str, dict[str, dict[str, int]]]) -> Any:
    counts = Counts(BIRDS)
    counts.add_run(published_images(), "0", training)
    return overall_table({"erm": counts})


def test_the_published_average_beside_the_plain_one() -> None:
    """75.0 of the balanced test images, 97.0 as papers print it; the weights by numpy."""
    table = overall_of(OF_TRAINING)
    (line,) = table.frame.to_dict("records")
    trained, n, fine = np.array(list(PUBLISHED.values())).T
    assert line["adjusted.place"] == pytest.approx(np.average(fine / n, weights=trained))
    assert f"{100 * line['accuracy']:.1f}" == "75.0"
    assert f"{100 * line['adjusted.place']:.1f}" == "97.0"
    assert [column.title for column in table.columns if column.name.startswith("adjusted")] == [
        "adjusted average"
    ]


def test_no_column_where_shares_are_not_known() -> None:
    table = overall_of({})
    assert not [name for name in table.frame if str(name).startswith("adjusted")]
    assert not any("adjusted" in note for note in table.notes)


def test_a_group_that_no_image_tests_is_named() -> None:
    frame = pd.concat([images.frame for images in published_images()])
    more = {
        "place": {**OF_TRAINING["place"], "sky": {"landbird": 3}},
        "hour": {"noon": {"landbird": 3}},
    }
    averages, reasons = adjusted_averages(frame, more, BIRDS)
    assert averages == {}
    assert reasons == ["adjusted average (place): trained on, but not tested: landbird, place sky"]


def test_folds_without_shares_have_no_average() -> None:
    counts = Counts(BIRDS)
    counts.add_run(published_images(), "0", OF_TRAINING)
    counts.add_run(published_images(), "0", {})
    counts.add_run(published_images(), "1", OF_TRAINING)
    assert counts.adjusted()["place"].index.tolist() == ["1"]


def test_a_class_that_is_only_predicted() -> None:
    """12.6 over the classes of the labels, where 9.5 was printed: scikit-learn, with the classes of
    both.
    """
    from sklearn.metrics import f1_score

    label = [int(k) for k in "301031551422111520402321515144350111313304350124350330431114"]
    predicted = [int(k) for k in "651617003737640535150554762132273622723524150541502161365330"]
    pairs = pd.DataFrame({"label": label, "predicted": predicted, "n": 1})
    assert f"{100 * macro_f1(pairs):.1f}" == "12.6"
    assert f"{100 * f1_score(label, predicted, average='macro', zero_division=0):.1f}" == "9.5"


def test_a_file_of_predictions_knows_its_shares(make: SimpleNamespace, tmp_path: Path) -> None:
    about = {
        "run": "x",
        "classes": BIRDS,
        "training": ["land", "water"],
        "training_groups": OF_TRAINING,
    }
    lines = pd.concat(
        [images.frame.assign(env=images.env) for images in published_images()], ignore_index=True
    )
    lines = lines.assign(
        eval_set="test",
        subset="test",
        top=[[0, 1]] * len(lines),
        probability=[[0.5, 0.5]] * len(lines),
    )
    kind = schema(about, ["place"])
    columns = [pa.array(lines[name].tolist()).cast(kind.field(name).type) for name in kind.names]
    pq.write_table(pa.Table.from_arrays(columns, schema=kind), tmp_path / PREDICTION_FILE)
    frame = dgbench.score(tmp_path / PREDICTION_FILE, groups=["label", "attribute.place"])
    measures = frame.loc["measure"]["error"]
    assert (
        f"{100 * (1 - measures['overall']):.1f} {100 * (1 - measures['adjusted_average']):.1f}"
        == "75.0 97.0"
    )
    plain = dgbench.score(tmp_path / PREDICTION_FILE, groups="label").loc["measure"]
    assert "adjusted_average" not in plain.index

"""DomainBed's digits and a published split of groups, trained and reported as a user does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.conftest import rows_in
from tests.data.layouts import image

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("dataset", "sizes"),
    [
        ("rotated_mnist", {"0": 240, "15": 240, "30": 240, "45": 240, "60": 240, "75": 240}),
        ("cmnist_domainbed", {"0.10": 480, "0.20": 480, "0.90": 480}),
    ],
)
def test_digits(
    train: Any, command: Any, tmp_path: Path, dataset: str, sizes: dict[str, int]
) -> None:
    """1,797 digits; four fifths of an environment of 300 or 299 (599) images are its in-split,
    rounded up.
    """
    ended = train(f"dataset={dataset}", "backbone=mlp", "hparams.batch_size=8", cwd=tmp_path)
    assert ended.code == 0, ended.err
    tested = [row for row in rows_in(tmp_path) if row["subset"] == "test" and row["step"] == 12]
    assert {row["env"]: row["seen"] for row in tested} == sizes
    assert all(row["env_held_out"] for row in tested) and len(tested) == len(sizes)
    report = command("report.py", "runs=[outputs]", "selection=train_val", cwd=tmp_path)
    assert report.code == 0, report.err
    assert dataset in report.out


def test_waterbirds(command: Any, tmp_path: Path) -> None:
    """One model of all published training images, tested on all published test images; groups are
    told apart.
    """
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for split, count in ((0, 3), (1, 1), (2, 10)):
        for y in (0, 1):
            for place in (0, 1):
                for _ in range(count + 4 * (split == 0 and y == place)):
                    image(tmp_path / "birds" / f"{len(lines)}.png")
                    lines.append(f"{len(lines)},{len(lines)}.png,{y},{split},{place},x")
    (tmp_path / "birds" / "metadata.csv").write_text("\n".join(lines) + "\n")
    ended = command(
        "train.py", "dataset=waterbirds", "dataset.root=birds", "protocol=fixed",
        "dataset.image_size=8", "backbone=mlp", "backbone.width=8", "trainer.steps=4",
        "trainer.eval_every=2", "hparams.batch_size=3", "trainer.device=cpu",
        "trainer.predictions=last", "selection=train_val", cwd=tmp_path,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    last = {
        (row["env"], row["subset"]): row["seen"] for row in rows_in(tmp_path) if row["step"] == 4
    }
    assert last == {
        ("land", "val"): 2,
        ("water", "val"): 2,
        ("test_land", "test"): 20,
        ("test_water", "test"): 20,
    }
    report = command("report.py", "report=errors", "runs=[outputs]", cwd=tmp_path)
    assert report.code == 0, report.err
    text = next(tmp_path.glob("reports/**/report.md")).read_text()
    for place in ("land", "water"):
        for bird in ("landbird", "waterbird"):
            assert f"| erm | test_{place} | {bird} | place={place} |" in text
    (file,) = tmp_path.glob("outputs/**/predictions.parquet")
    frame = pq.read_table(file).to_pandas()
    frame = frame[frame["subset"] == "test"]
    accuracy = (
        (frame["label"] == frame["predicted"])
        .groupby([frame["label"], frame["attribute.place"]])
        .mean()
    )
    trained = {(0, "land"): 7, (0, "water"): 3, (1, "land"): 3, (1, "water"): 7}
    adjusted = sum(n * accuracy[group] for group, n in trained.items()) / 20
    table = pd.read_csv(next(tmp_path.glob("reports/**/errors.csv")))
    assert table["adjusted.place"].tolist() == [pytest.approx(adjusted)]

"""Tables of others with draws of hyperparameters, several datasets, and weights of groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dgbench
from dgbench.analysis.measures import WeightedAverage
from dgbench.analysis.selection import Last, Selection, TrainVal
from dgbench.errors import MeasureError
from dgbench.reports.document import Document, warnings
from dgbench.reports.importers.table import read_table
from dgbench.reports.measuring.report import MeasuresReport
from tests.conftest import Command

ENVIRONMENTS = {"one": ("A", "B", "C"), "two": ("X", "Y", "Z")}
#: validation accuracy of each draw: of dataset one draw 1 is chosen, of two draw 2
VALIDATION = {"one": (0.6, 0.9, 0.7), "two": (0.6, 0.7, 0.9)}
#: training images of Waterbirds by class and background (Sagawa et al., 2020)
TRAINING = {"landland": 3498, "landwater": 184, "waterland": 56, "waterwater": 1057}


def lines(validated: bool) -> pd.DataFrame:
    """List two algorithms, two seeds and three draws in three environments of each dataset.

    The accuracy of draw d is 0.5 + d/10, in all environments; IRM is a point better.
    """
    found = []
    for dataset, environments in ENVIRONMENTS.items():
        for algorithm in ("erm", "irm"):
            for seed in (0, 1):
                for draw in range(3):
                    line: dict[str, Any] = {"dataset": dataset, "algorithm": algorithm}
                    line |= {"seed": seed, "draw": draw}
                    line["accuracy"] = 0.5 + draw / 10 + 0.01 * (algorithm == "irm")
                    if validated:
                        line["validation"] = VALIDATION[dataset][draw]
                    found += [{**line, "environment": name} for name in environments]
    return pd.DataFrame(found)


def document(frame: pd.DataFrame, selection: Selection, **keys: Any) -> Document:
    report = MeasuresReport(name="measures", **keys)
    return report(read_table(frame), selection)


def test_draws_are_chosen_by_validation_in_each_dataset(tmp_path: Path) -> None:
    """Never by what is tested: of dataset one the best draw is not taken."""
    lines(validated=True).to_csv(tmp_path / "draws.csv")
    chosen = dgbench.results(tmp_path / "draws.csv", selection="train_val")
    measured = dgbench.measures(chosen).groupby(["dataset", "label"])["average"].mean()
    expected = {("one", "erm"): 0.4, ("one", "irm"): 0.39}
    expected |= {("two", "erm"): 0.3, ("two", "irm"): 0.29}
    assert measured.round(9).to_dict() == expected


def test_without_validation_no_draw_can_be_chosen() -> None:
    collection = read_table(lines(validated=False))
    (problem,) = (p for p in collection.problems if p.kind == "no selection")
    assert problem.reason.startswith("3 draws of hyperparameters and no accuracy on validation")
    assert "add a column validation" in problem.reason
    (sentence,) = warnings(Last(), collection)
    assert "none can be chosen without looking" in sentence and "train_val" not in sentence
    apart = document(lines(validated=False), Last()).sections[0].tables[0].frame
    assert sorted(apart["algorithm"])[:3] == ["erm (draw=0)", "erm (draw=1)", "erm (draw=2)"]
    chosen = document(lines(validated=False), TrainVal()).sections[0].tables[0].frame
    assert chosen["average"].isna().all()


def test_with_validation_the_way_to_choose_is_named() -> None:
    collection = read_table(lines(validated=True))
    assert not [problem for problem in collection.problems if problem.kind == "no selection"]
    (sentence,) = warnings(Last(), collection)
    assert "selection=train_val chooses one of every search" in sentence


def test_one_draw_of_each_algorithm_is_no_search() -> None:
    """Papers print the draw that they chose."""
    frame = lines(validated=False)
    printed = frame[frame["draw"] == frame["algorithm"].map({"erm": 1, "irm": 2})]
    collection = read_table(printed)
    assert not [problem for problem in collection.problems if problem.kind == "no selection"]


def groups(order: tuple[str, ...] = tuple(TRAINING)) -> pd.DataFrame:
    accuracy = {"landland": 99.0, "landwater": 51.0, "waterland": 52.0, "waterwater": 98.0}
    better = {"landland": 93.0, "landwater": 90.0, "waterland": 88.0, "waterwater": 92.0}
    models = {"erm": accuracy, "group_dro": better}
    return pd.DataFrame(
        [
            {"algorithm": name, "seed": seed, **{group: values[group] for group in order}}
            for name, values in models.items()
            for seed in (0, 1)
        ]
    )


def weights() -> WeightedAverage:
    return WeightedAverage(
        name="over_images", title="over images", formula="weighed by images", weights=TRAINING
    )


def weighed(frame: pd.DataFrame, file: Path) -> pd.DataFrame:
    frame.to_csv(file, index=False)
    return dgbench.measures(dgbench.results(file), measures=["average", weights()])


def test_groups_are_weighed_by_their_images(tmp_path: Path) -> None:
    """96.4, as papers print of Waterbirds, where the plain average is 75.0."""
    measured = weighed(groups(), tmp_path / "groups.csv").set_index(["label", "seed"])
    images = np.array(list(TRAINING.values()))
    of_erm = 1 - np.array([0.99, 0.51, 0.52, 0.98]) @ images / images.sum()
    of_dro = 1 - np.array([0.93, 0.90, 0.88, 0.92]) @ images / images.sum()
    assert measured.loc[("erm", 0), "over_images"] == pytest.approx(of_erm)
    assert round(100 * (1 - of_erm), 1) == 96.4
    assert measured.loc[("group_dro", 1), "over_images"] == pytest.approx(of_dro)
    assert measured.loc[("erm", 0), "average"] == pytest.approx(0.25)


def test_weights_of_other_environments_are_named(tmp_path: Path) -> None:
    """Also in another order, since intervals know no names."""
    order = ("waterwater", "landland", "landwater", "waterland")
    other = weighed(groups(order), tmp_path / "groups.csv")
    assert other["over_images"].isna().all()
    table = document(groups(order), Last(), measures=["average", weights()]).sections[0].tables[0]
    (reason,) = set(table.frame["over_images.reason"])
    assert "the environments are waterwater, landland" in reason
    assert "give weights of these, in their order" in reason
    with pytest.raises(MeasureError, match="2 errors, and weights of 1"):
        WeightedAverage(name="a", title="a", formula="a", weights={"A": 1.0})([0.1, 0.2])


@pytest.mark.thorough
def test_weights_stand_in_a_file_and_rank(command: Command, tmp_path: Path) -> None:
    (tmp_path / "own" / "measure").mkdir(parents=True)
    text = ", ".join(f"{name}: {count}" for name, count in TRAINING.items())
    (tmp_path / "own" / "measure" / "over_images.yaml").write_text(
        "_target_: dgbench.analysis.measures.WeightedAverage\ntitle: over images\n"
        f"formula: weighed by training images\nweights: {{{text}}}\n"
    )
    groups().to_csv(tmp_path / "groups.csv", index=False)
    ended = command(
        "report.py",
        *("--config-dir", "own", "import=table", "import.path=groups.csv"),
        *("report.compared=[over_images]", "only=[measures]"),
        cwd=tmp_path,
    )
    assert ended.code == 0, ended.err
    assert "erm leads by over images" in ended.out
    assert "erm: over images 3.6%" in ended.out

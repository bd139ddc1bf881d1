"""Predictions of others: a line for each image, and arrays that nothing unpickles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import dgbench
from dgbench.errors import ConfigError, RecordError
from dgbench.reports.importers.predictions import ALIASES, read_predictions_of_others
from tests.complaints import one_line, refused
from tests.conftest import ROOT

CLASSES = ("cat", "dog", "car")


def answers() -> pd.DataFrame:
    """As model-vs-human writes them: two models, three conditions, 40 images."""
    dice = np.random.default_rng(7)
    lines = []
    for subject in ("resnet50", "vit_b"):
        for condition in (0, 10, 30):
            for trial in range(40):
                truth = CLASSES[trial % 3]
                answer = truth if dice.random() > condition / 50 else "cat"
                lines.append([subject, 1, trial, answer, truth, condition, f"{trial}_{truth}.png"])
    names = "subj session trial object_response category condition imagename"
    return pd.DataFrame(lines, columns=names.split())


def errors_of(frame: pd.DataFrame) -> dict[tuple[str, str], float]:
    """The share of wrong answers, by pandas."""
    wrong = frame["object_response"] != frame["category"]
    means = wrong.groupby([frame["subj"], frame["condition"].astype(str)]).mean()
    return {(str(subject), str(condition)): value for (subject, condition), value in means.items()}


def test_answers_are_counted(tmp_path: Path) -> None:
    frame = answers()
    frame.to_csv(tmp_path / "answers.csv", index=False)
    collection = read_predictions_of_others(tmp_path / "answers.csv", classes=3)
    runs = [run.identity for run in collection.runs]
    read = {
        (runs[line.run]["algorithm"], line.env): line.wrong / line.seen
        for line in collection.rows.itertuples()
    }
    assert read == pytest.approx(errors_of(frame))
    assert set(collection.rows["seen"]) == {40}
    assert {run["n_classes"] for run in runs} == {3}
    text = "; ".join(problem.reason for problem in collection.problems)
    assert "240 predictions of 2 algorithms" in text and "predicted from object_response" in text


def test_a_file_for_each_model(tmp_path: Path) -> None:
    frame = answers()
    for subject, lines in frame.groupby("subj"):
        lines.drop(columns="subj").to_csv(tmp_path / f"answers_{subject}.csv", index=False)
    collection = read_predictions_of_others(tmp_path, algorithm_from="file")
    assert {run.identity["algorithm"] for run in collection.runs} == {"resnet50", "vit_b"}
    with refused("no column is the algorithm", RecordError):
        read_predictions_of_others(tmp_path)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda f: pd.concat([f, f[:1]]), r"imagename is 0_cat\.png in line 241.*predicted before"),
        (lambda f: f.drop(columns="category"), r"no column is the label.*import\.columns\.label"),
        (lambda f: f.assign(object_response=[None, *f["object_response"][1:]]), "line 1.*no name"),
        (lambda f: f.assign(object_response=0), "object_response holds 0, no class of category"),
        (lambda f: f.assign(method="x"), "subj and method|method and subj"),
    ],
)
def test_a_fault_is_refused_in_one_line(change: Any, fault: str) -> None:
    with pytest.raises((RecordError, ConfigError)) as caught:
        read_predictions_of_others(change(answers()).reset_index(drop=True))
    one_line(str(caught.value), fault)


def test_conf_names_every_column() -> None:
    conf = yaml.safe_load((ROOT / "conf" / "import" / "predictions.yaml").read_text())
    assert set(conf["columns"]) == {*ALIASES}


@pytest.fixture
def one_model(tmp_path: Path) -> pd.DataFrame:
    frame = answers()[lambda lines: lines["subj"] == "vit_b"]
    frame.to_csv(tmp_path / "one.csv", index=False)
    numbers = {name: number for number, name in enumerate(CLASSES)}
    true = frame["category"].map(numbers).to_numpy()
    predicted = frame["object_response"].map(numbers).to_numpy()
    np.save(tmp_path / "true.npy", true)
    np.savez(tmp_path / "predicted.npz", predicted)
    torch.save(torch.tensor(predicted), tmp_path / "predicted.pt")
    pd.DataFrame(predicted).to_csv(tmp_path / "x_pred.csv", index=False, header=False)  # as WILDS
    pd.Series(predicted, name="y_pred").to_csv(tmp_path / "named.csv", index=False)
    return frame


FILES = ["predicted.npz", "predicted.pt", "x_pred.csv", "named.csv"]


@pytest.mark.parametrize("name", FILES)
def test_files_of_arrays_are_scored(name: str, one_model: pd.DataFrame, tmp_path: Path) -> None:
    scored = dgbench.score(tmp_path / "true.npy", tmp_path / name, one_model["condition"])
    expected = errors_of(one_model)
    errors = scored.loc["environment", "error"].to_dict()
    assert errors == {condition: expected["vit_b", condition] for condition in ("0", "10", "30")}
    table = dgbench.score(tmp_path / "one.csv")
    assert table.loc["environment", "error"].to_dict() == errors


class Malicious:
    """Unpickled, it writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return (Path.touch, (self.file,))


@pytest.mark.parametrize("suffix", [".npy", ".pt"])
def test_nothing_is_unpickled(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"bad{suffix}"
    harm = Malicious(tmp_path / "harm")
    if suffix == ".npy":
        np.save(file, np.array([harm], dtype=object), allow_pickle=True)
    else:
        torch.save(harm, file)
    with refused(rf"bad\{suffix}.*(can|could) run code", RecordError):
        dgbench.score(file, file, ["a"])
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("1\n2\n\n3\n", "no value in line 3"),
        ("1,2\n", "several values in line 1"),
        ("\n", "empty"),
    ],
)
def test_a_column_of_text_that_is_none(content: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / "x_pred.csv").write_text(content)
    with refused(rf"x_pred\.csv.*{fault}", RecordError):
        dgbench.score(tmp_path / "x_pred.csv", tmp_path / "x_pred.csv", ["a"])


def test_predictions_of_two_models_are_not_scored_as_one(tmp_path: Path) -> None:
    answers().to_csv(tmp_path / "two.csv", index=False)
    with refused("2 models, resnet50, vit_b.*import=predictions", RecordError):
        dgbench.score(tmp_path / "two.csv")

"""Errors by class in rows, and selections that look at them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dgbench
from dgbench.analysis.selection import TrainVal
from dgbench.errors import ConfigError
from dgbench.records.row_columns import parse_columns
from dgbench.records.rows import LATER_COUNTS, ROW_FILE, parse_rows
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs
from tests.studies import groups_of, small_study, stopping_at, train_study

WORDS = ("trainer.steps=6", "trainer.eval_every=2", "trainer.checkpoint_seconds=0")
BY_CLASS = ("worst_class_wrong", "balanced_wrong")


def lines_of(run: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / ROW_FILE).read_text().splitlines()]


def test_they_are_those_of_the_predictions(tmp_path: Path) -> None:
    """Largest and mean error of a class, by hand from what was predicted for every image."""
    study = small_study(
        tmp_path, *WORDS, "trainer.class_errors=true", "trainer.predictions=last",
        "dataset.evaluation=sampled", "protocol.folds=[0]",
    )  # fmt: skip
    train_study(study)
    (run,) = study.runs
    frame = pd.read_parquet(run.folder / "predictions.parquet")
    last = [line for line in lines_of(run) if line["step"] == 6]
    assert len(last) > 3
    for line in last:
        there = frame[(frame["env"] == line["env"]) & (frame["subset"] == line["subset"])]
        wrong = there["label"] != there["predicted"]
        assert wrong.sum() == line["wrong"]
        errors = wrong.groupby(there["label"].astype(int)).mean()
        assert line["worst_class_wrong"] == pytest.approx(errors.max() * line["seen"])
        assert line["balanced_wrong"] == pytest.approx(errors.mean() * line["seen"])


def test_mixtures_of_eval_sets_have_the_expected_ones(tmp_path: Path) -> None:
    """The error of a painted environment is linear in its share of disagreeing images, and so is
    the mean over classes.
    """
    study = small_study(tmp_path, *WORDS, "trainer.class_errors=true", "protocol.folds=[0]")
    train_study(study)
    tested = [line for line in lines_of(study.runs[0]) if line["subset"] == "test"]
    for line in tested:
        assert line["wrong"] <= line["worst_class_wrong"] + 1e-9
        assert 0 <= line["balanced_wrong"] <= line["worst_class_wrong"] + 1e-9
    first = [line for line in tested if line["step"] == 2]
    shares = [float(line["env"]) for line in first]
    errors = [line["balanced_wrong"] / line["seen"] for line in first]
    slopes = {
        round((error - errors[0]) / (share - shares[0]), 6)
        for share, error in zip(shares[1:], errors[1:], strict=True)
    }
    assert len(slopes) == 1


def test_runs_rows_and_names_are_otherwise_the_same(tmp_path: Path) -> None:
    plain, more = (
        small_study(tmp_path / name, *WORDS, *words, "execution=stacked")
        for name, words in (("plain", ()), ("more", ("trainer.class_errors=true",)))
    )
    assert len(groups_of(more)[0].runs) > 1
    for study in (plain, more):
        train_study(study)
    for one, other in zip(plain.runs, more.runs, strict=True):
        assert one.hash == other.hash
        assert not any(key in line for line in lines_of(one) for key in BY_CLASS)
        without = [
            {key: value for key, value in line.items() if key not in BY_CLASS}
            for line in lines_of(other)
        ]
        assert without == lines_of(one)


def test_a_stack_counts_for_each_run(tmp_path: Path) -> None:
    counted = []
    for execution in ("single", "stacked"):
        study = small_study(
            tmp_path / execution, *WORDS, "trainer.class_errors=true", f"execution={execution}",
            "trainer.precision=64-true",
        )  # fmt: skip
        train_study(study)
        counted.append([[line[key] for key in BY_CLASS] for line in lines_of(study.runs[1])])
    assert counted[0]
    for one, other in zip(*counted, strict=True):
        assert one == pytest.approx(other)


def test_interrupted_and_resumed(tmp_path: Path) -> None:
    words = (*WORDS, "trainer.class_errors=true", "protocol.folds=[0]")
    whole, again = (small_study(tmp_path / name, *words) for name in ("whole", "again"))
    train_study(whole)
    with stopping_at(3):
        train_study(again)
    train_study(again)
    files = [study.runs[0].folder / ROW_FILE for study in (whole, again)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_readers_take_them_and_refuse_what_is_none(tmp_path: Path) -> None:
    study = small_study(tmp_path, *WORDS, "trainer.class_errors=true", "protocol.folds=[0]")
    train_study(study)
    content = (study.runs[0].folder / ROW_FILE).read_bytes()
    rows, problems = parse_rows(content)
    columns = parse_columns(content)
    assert columns is not None and not problems
    for key in LATER_COUNTS:
        assert list(columns.columns[key]) == [row.own[key] for row in rows]
    line = json.loads(content.splitlines()[0])
    for value in (-1.0, line["seen"] + 1.0, "x", True):
        for key in BY_CLASS:
            broken = json.dumps({**line, key: value}).encode()
            assert parse_rows(broken + b"\n" + content)[1], (key, value)
            changed = content.replace(content.splitlines()[0], broken)
            assert parse_columns(changed) is None


def test_a_selection_looks_at_them(tmp_path: Path) -> None:
    """Reports choose by the rows; a run without them is left out, with what it needs."""
    study = small_study(tmp_path, *WORDS, "trainer.class_errors=true", "protocol.folds=[0]")
    train_study(study)
    collection = collect([tmp_path])
    for criterion, key in (("worst_group", BY_CLASS[0]), ("balanced", BY_CLASS[1])):
        (run,) = select_runs(collection, TrainVal(criterion=criterion)).runs
        best: dict[int, float] = {}
        for line in lines_of(study.runs[0]):
            if line["subset"] == "val" and not line["env_held_out"]:
                accuracy = 1 - line[key] / line["seen"]
                if criterion == "worst_group":
                    best[line["step"]] = min(best.get(line["step"], 1.0), accuracy)
                else:
                    best[line["step"]] = best.get(line["step"], 0.0) + accuracy
        assert run.step == max(best, key=lambda step: (best[step], -step))
        assert not run.reason
    plain = small_study(tmp_path / "plain", *WORDS, "protocol.folds=[0]")
    train_study(plain)
    (run,) = select_runs(collect([tmp_path / "plain"]), TrainVal(criterion="balanced")).runs
    assert "trainer.class_errors=true" in run.reason


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("trainer.class_errors=maybe",), r"trainer\.class_errors=maybe is unknown.*true or false"),
        (
            ("trainer.class_errors=true", "trainer.devices=2"),
            r"trainer\.class_errors=true needs one process.*false",
        ),
    ],
)
def test_refused(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=line):
        small_study(tmp_path, *words)
    assert not list(tmp_path.iterdir())


def test_an_unknown_criterion_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"selection\.criterion=group is unknown; choose"):
        dgbench.train(["selection=train_val", "selection.criterion=group"], tmp_path)
    assert not list(tmp_path.iterdir())

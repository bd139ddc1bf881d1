"""Rows of models that adapt at test time: apart from those that do not, named, and chosen among."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgbench.analysis.selection import (
    CHOSEN,
    Last,
    LooVal,
    OodVal,
    Oracle,
    Selection,
    TrainVal,
    Yu2024,
    describe,
)
from dgbench.reports.document import Document, Report
from dgbench.reports.evaluation import evaluate
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.slices.curves import CurvesReport
from dgbench.reports.slices.hparams import HparamsReport
from dgbench.reports.slices.leakage import LeakageReport
from dgbench.reports.slices.power import PowerReport
from dgbench.reports.slices.theory import TheoryReport
from tests.complaints import refused
from tests.tables import table

#: how a model adapts -> its errors in training environments, and held out
ERRORS = {
    ("none", None): (0.15, 0.30),
    ("bn", None): (0.05, 0.70),
    ("tent", 0.1): (0.20, 0.50),
    ("tent", 0.01): (0.10, 0.60),
}
SEEDS = (0, 1)

Errors = dict[tuple[str, float | None], tuple[float, float]]


def adapted(name: str, lr: float | None) -> dict[str, Any]:
    if name == "none":
        return {}
    hparams: dict[str, Any] = {"lr": 0.001, "adaptation.batch_size": 32}
    if lr is not None:
        hparams["adaptation.lr"] = lr
    return {"adaptation": name, "hparams": hparams, "grouped": True}


def write(root: Path, make: SimpleNamespace, errors: Errors = ERRORS, **changes: Any) -> Path:
    """Runs of every fold and seed, each adapted in every way."""
    for (name, lr), (known, unseen) in errors.items():
        for seed in SEEDS:
            for fold in range(4):
                run = f"erm-{fold}-{seed}-{name}-{lr}"
                who = make.identity("erm", str(fold), seed, run=run, **adapted(name, lr), **changes)
                held_out = set(who.held_out)
                make.write_run(
                    root,
                    who,
                    lambda env, step, out=held_out, a=known, b=unseen: b if env in out else a,
                    folder=run,
                    steps=[200],
                )
    return root


@pytest.fixture
def runs(tmp_path: Path, make: SimpleNamespace) -> Path:
    return write(tmp_path / "runs", make)


def averages(root: Path, selection: Selection) -> dict[str, float]:
    studies = evaluate(select_runs(collect([root]), selection)).studies
    means = studies.groupby("algorithm")["average"].mean()
    return {str(name): round(float(value), 3) for name, value in means.items()}


def counting(root: Path, selection: Selection) -> set[str]:
    return {
        str(run.identity["run"])
        for run in select_runs(collect([root]), selection).runs
        if not run.reason
    }


def test_without_a_choice_each_has_a_line(runs: Path) -> None:
    assert averages(runs, Last()) == {
        "erm": 0.3,
        "erm (adaptation=bn)": 0.7,
        "erm (adaptation=tent, adaptation.lr=0.01)": 0.6,
        "erm (adaptation=tent, adaptation.lr=0.1)": 0.5,
    }


def test_validation_chooses_hyperparameters_of_each_method(runs: Path) -> None:
    assert averages(runs, TrainVal()) == {
        "erm": 0.3,
        "erm (adaptation=bn)": 0.7,
        "erm (adaptation=tent)": 0.6,
    }
    losers = {
        run.reason
        for run in select_runs(collect([runs]), TrainVal()).runs
        if run.reason and run.not_chosen
    }
    assert losers == {"draw 0 with adaptation=tent, batch_size=32, lr=0.01 was chosen"}


@pytest.mark.parametrize("selection", [TrainVal, Yu2024])
def test_validation_chooses_the_method(runs: Path, selection: type[TrainVal | Yu2024]) -> None:
    """The best in training environments, here the worst in the tested ones."""
    chosen = selection(adaptation=CHOSEN)
    assert averages(runs, chosen) == {"erm (adaptation=chosen)": 0.7}
    assert describe(chosen).endswith(", of the adaptation as well")


def test_an_oracle_that_chooses_says_so(runs: Path) -> None:
    chosen = Oracle(adaptation=CHOSEN)
    assert averages(runs, chosen) == {"erm (adaptation=chosen)": 0.3}
    assert describe(chosen).startswith("ORACLE SELECTION")


def test_what_is_chosen_does_not_depend_on_test_labels(
    tmp_path: Path, make: SimpleNamespace
) -> None:
    """Whatever the errors in tested environments are."""
    chosen = set()
    for number, unseen in enumerate(((0.1, 0.2, 0.3, 0.4), (0.9, 0.6, 0.5, 0.2))):
        errors = {
            key: (known, other)
            for (key, (known, _)), other in zip(ERRORS.items(), unseen, strict=True)
        }
        root = write(tmp_path / str(number), make, errors)
        names = counting(root, TrainVal()), counting(root, TrainVal(adaptation=CHOSEN))
        chosen.add((frozenset(names[0]), frozenset(names[1])))
    assert len(chosen) == 1
    assert counting(root, Oracle(adaptation=CHOSEN)) != names[1]


def test_of_equals_the_one_that_does_not_adapt(tmp_path: Path, make: SimpleNamespace) -> None:
    equal = dict.fromkeys(ERRORS, (0.1, 0.3))
    root = write(tmp_path, make, equal)
    assert {name.partition("-none")[1] for name in counting(root, TrainVal(adaptation=CHOSEN))} == {
        "-none"
    }
    del equal["none", None]
    (tmp_path / "two").mkdir()
    without = write(tmp_path / "two", make, equal)
    kept = counting(without, TrainVal(adaptation=CHOSEN))
    assert all("-bn-" in name for name in kept), "then by the alphabet, not by folders"


def test_algorithms_without_adapted_runs_keep_their_names(
    runs: Path, make: SimpleNamespace
) -> None:
    for seed in SEEDS:
        for fold in range(4):
            who = make.identity("vrex", str(fold), seed)
            make.write_run(runs, who, lambda env, step: 0.2, folder=who.run, steps=[200])
    assert set(averages(runs, TrainVal(adaptation=CHOSEN))) == {"erm (adaptation=chosen)", "vrex"}


def test_training_environments_held_out_in_turn(tmp_path: Path, make: SimpleNamespace) -> None:
    """A method is judged in environments that the judging run adapted to and never trained on."""
    given = ["a", "b", "c"]
    folds = [["a"], ["b"], ["c"], ["a", "b"], ["a", "c"], ["b", "c"]]
    unseen = {"none": 0.4, "bn": 0.2, "tent": 0.3}
    for name, error in unseen.items():
        for number, held_out in enumerate(folds):
            pair = len(held_out) > 1
            planned = [["a", "b"], ["a", "c"], ["b", "c"]] if pair else [["a"], ["b"], ["c"]]
            who = make.identity(
                "erm", str(number % 3), 0, given=given, held_out=held_out, folds=planned,
                run=f"{name}-{held_out}", protocol="pairs" if pair else "loo",
                **adapted(name, None),
            )  # fmt: skip
            # what a pair's run makes of an environment, and a larger error where it counts
            value = error if pair else 1 - error
            make.write_run(
                tmp_path, who, lambda env, step, v=value: v, folder=who.run, steps=[200], grid=[]
            )
    selected = select_runs(collect([tmp_path]), LooVal(adaptation=CHOSEN))
    chosen = {
        str(run.identity["run"]) for run in selected.runs if not run.reason and run.step == 200
    }
    assert {name for name in chosen if name.count("'") == 2} == {f"bn-['{env}']" for env in given}


# ---- what documents say --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "report",
    [MeasuresReport(), LeaderboardReport(), HparamsReport(), PowerReport(), TheoryReport()],
    ids=lambda report: report.name,
)
def test_a_document_says_adapted_at_test_time(runs: Path, report: Report) -> None:
    document: Document = report(collect([runs]), TrainVal())
    assert any(text.startswith("ADAPTED AT TEST TIME") for text in document.warnings)


@pytest.mark.parametrize(
    "report",
    [MeasuresReport(), LeaderboardReport(), HparamsReport(), CurvesReport(), LeakageReport()],
    ids=lambda report: report.name,
)
def test_every_table_says_adapted_at_test_time(runs: Path, report: Report) -> None:
    document: Document = report(collect([runs]), TrainVal())
    named = 0
    for section in document.sections:
        for item in section.tables:
            texts = [column.shown for column in item.columns]
            for column in item.columns:
                texts += map(str, item.frame[column.name])
            if any("(adaptation=" in text for text in texts):
                named += 1
                assert any("adapted at test time" in note for note in item.notes), item.name
    assert named


def test_nothing_is_said_of_models_that_do_not_adapt(small_study: Path) -> None:
    document = MeasuresReport()(collect([small_study]), Last())
    assert "dapted" not in repr([document.warnings, [s.tables for s in document.sections]])


def test_the_order_of_the_stream_is_a_part_of_the_noise(
    tmp_path: Path, make: SimpleNamespace
) -> None:
    """Two algorithms 1 point apart, which the order of the stream alone moves by 20."""

    def write_all(algorithm: str, seed: int, error: float, **changes: Any) -> None:
        for fold in range(4):
            run = f"{algorithm}-{fold}-{seed}-{changes.get('seed_moves', 'all')}"
            keys = {**adapted("bn", None), **changes}
            who = make.identity(algorithm, str(fold), seed, run=run, **keys)
            make.write_run(tmp_path, who, lambda env, step: error, folder=run, steps=[200])

    for seed in SEEDS:
        write_all("erm", seed, 0.30)
        write_all("vrex", seed, 0.31)
        write_all("erm", seed, 0.30, seed_moves="stream")
        write_all("vrex", seed, 0.30 + 0.2 * seed, seed_moves="stream")
    document = MeasuresReport()(collect([tmp_path]), Last())
    notes = " ".join(table(document, "measures").notes)
    notes += " ".join(str(section.answer) for section in document.sections)
    assert "by the order of the stream alone (2 repetitions, 95%)" in notes + repr(
        [item.notes for section in document.sections for item in section.tables]
    )
    said = [section.title for section in document.sections]
    assert any("seed_moves=stream" in title for title in said)


# ---- wrong values --------------------------------------------------------------------------------


def test_values_that_cannot_be() -> None:
    with refused(r"selection.adaptation=all is unknown; choose each or chosen"):
        TrainVal(adaptation="all")
    with refused(r"selection.adaptation=all is unknown"):
        OodVal(["a"], adaptation="all")
    with refused(r"selection.adaptation=chosen needs an accuracy .* choose selection=train_val"):
        Last(adaptation=CHOSEN)

"""Model selection over rows written by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dgbench.analysis.evaluations import COUNTED_BY, Records, RunKey, records_of
from dgbench.analysis.selection import Last, LooVal, OodVal, Oracle, Selection, TrainVal, describe
from dgbench.errors import ConfigError

CONF = Path(__file__).parents[2] / "conf" / "selection"


def row(
    step: int, env: str, wrong: float, subset: str = "val", held_out: bool = False, seen: int = 10
) -> dict[str, Any]:
    return {
        "step": step,
        "env": env,
        "subset": subset,
        "env_held_out": held_out,
        "seen": seen,
        "wrong": wrong,
    }


def records(rows: Sequence[Mapping[str, Any]]) -> Records:
    """The rows of one run as columns."""
    names = ["run", "step", "env", "subset", "env_held_out", "seen", "wrong"]
    if rows and "balanced_wrong" in rows[0]:
        names += COUNTED_BY.values()
    frame = pd.DataFrame([{"run": 0, **row} for row in rows], columns=names)
    return records_of(frame.astype({"run": int, "step": int}), [RunKey("")])


def chosen(selection: Selection, rows: Sequence[Mapping[str, Any]]) -> tuple[int, float | None]:
    """Step and validation accuracy of one run; None where the method has none."""
    choices = selection.choose(records(rows))
    return int(choices.steps[0]), float(choices.accuracy[0]) if choices.judged[0] else None


#: env c is held out; its validation error is lowest at step 30 and must not matter to train_val
ROWS = [
    row(10, "a", 3), row(10, "b", 1), row(10, "c", 9, held_out=True), row(10, "c", 9, "test", True),
    row(20, "a", 1), row(20, "b", 3), row(20, "c", 8, held_out=True), row(20, "c", 8, "test", True),
    row(30, "a", 4), row(30, "b", 2), row(30, "c", 0, held_out=True), row(30, "c", 1, "test", True),
]  # fmt: skip


def test_last() -> None:
    assert chosen(Last(), ROWS) == (30, None)
    assert chosen(Last(), list(reversed(ROWS))) == (30, None)


def test_train_val_first_on_ties() -> None:
    """Accuracies of (a, b): step 10 (.7, .9), step 20 (.9, .7), step 30 (.6, .8):
    means .8, .8, .7.
    """
    assert chosen(TrainVal(), ROWS) == pytest.approx((10, 0.8))
    assert chosen(TrainVal(), list(reversed(ROWS)))[0] == 10


def test_train_val_is_unweighted() -> None:
    """a has 100 images, b has 10.

    Step 1: (.9 + .1) / 2 = .5; step 2: (.5 + .6) / 2 = .55; pooled, step 1 would win.
    """
    rows = [row(1, "a", 10, seen=100), row(1, "b", 9), row(2, "a", 50, seen=100), row(2, "b", 4)]
    assert chosen(TrainVal(), rows) == pytest.approx((2, 0.55))


def test_train_val_skips_steps_that_lack_an_environment() -> None:
    assert chosen(TrainVal(), [*ROWS, row(40, "a", 0)])[0] == 10
    assert (
        "every training environment"
        in TrainVal().choose(records([row(1, "a", 0), row(2, "b", 0)])).reason[0]
    )


def test_oracle_uses_the_held_out_validation_subset_of_the_last_step() -> None:
    """Step 30 has no held-out error in val: accuracy 1, though another step might be chosen by
    others.
    """
    assert chosen(Oracle(), ROWS) == (30, 1.0)


def test_oracle_of_the_full_member_has_no_accuracy() -> None:
    full = [row(10, "a", 3), row(10, "0.50", 3, "test", held_out=True)]
    assert chosen(Oracle(), full) == (10, None)


def test_oracle_is_always_marked() -> None:
    assert "ORACLE" in describe(Oracle())
    assert "ORACLE" not in describe(Last()) + describe(TrainVal())
    assert [s.uses_test_environments for s in (Last(), TrainVal(), Oracle())] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("selection", "rows", "message"),
    [
        (Last(), [], "no rows"),
        (TrainVal(), [row(1, "a", 1, "test")], "no val rows"),
        (Oracle(), [*ROWS, row(40, "a", 1)], "environment at step 40"),
    ],
)
def test_rows_that_lack_what_is_needed(selection: Any, rows: Any, message: str) -> None:
    assert message in selection.choose(records(rows)).reason[0]


@pytest.mark.parametrize("file", sorted(CONF.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_file_makes_a_selection_of_its_name(file: Path) -> None:
    settings = OmegaConf.load(file)
    asked = {"environments": ["c"]} if "environments" in settings else {}
    selection = instantiate(settings, **asked)
    assert selection.name == file.stem
    assert selection.title in describe(selection)
    assert selection.choose(records(ROWS)).steps[0] in (-1, 10, 20, 30)


def test_nan_is_lowest_within_a_run() -> None:
    """Accuracies at steps 1, 2, 3: NaN, .5, .4."""
    rows = [row(1, "a", math.nan), row(2, "a", 5), row(3, "a", 6)]
    assert chosen(TrainVal(), rows) == pytest.approx((2, 0.5))


#: train_val: worst 0.5 at step 10, 0.7 at steps 20 and 30, mean 0.75, 0.7 and 0.7
UNEVEN = [
    row(10, "a", 0), row(10, "b", 5),
    row(10, "c", 1, held_out=True), row(10, "d", 9, held_out=True),
    row(20, "a", 3), row(20, "b", 3),
    row(20, "c", 4, held_out=True), row(20, "d", 5, held_out=True),
    row(30, "a", 3), row(30, "b", 3),
    row(30, "c", 2, held_out=True), row(30, "d", 3, held_out=True),
]  # fmt: skip


def test_the_worst_environment_in_place_of_the_mean() -> None:
    """By hand: the step with the highest lowest accuracy, the first on ties; NaN is lowest."""
    assert chosen(TrainVal(), UNEVEN) == pytest.approx((10, 0.75))
    assert chosen(TrainVal(criterion="worst_environment"), UNEVEN) == pytest.approx((20, 0.7))
    assert chosen(Oracle(), UNEVEN) == pytest.approx((30, 0.75))
    assert chosen(Oracle(criterion="worst_environment"), UNEVEN) == pytest.approx((30, 0.7))
    two = ["c", "d"]
    assert chosen(OodVal(two), UNEVEN) == pytest.approx((30, 0.75))
    assert chosen(OodVal(two, criterion="worst_environment"), UNEVEN) == pytest.approx((30, 0.7))
    blank = [*UNEVEN[4:], row(10, "a", 0), row(10, "b", math.nan)]
    assert chosen(TrainVal(criterion="worst_environment"), blank)[0] == 20


def test_the_worst_of_runs_that_judge() -> None:
    """A run is judged by those that hold out a or b as well: 0.9 and 0.3, then 0.5 and 0.6."""
    names = ["run", "step", "env", "subset", "env_held_out", "seen", "wrong"]
    lines = []
    for step, (wrong_a, wrong_b) in {10: (1, 7), 20: (5, 4)}.items():
        lines.append({"run": 0, **row(step, "c", 5, "test", True)})
        lines.append({"run": 1, **row(step, "a", wrong_a, "test", True)})
        lines.append({"run": 2, **row(step, "b", wrong_b, "test", True)})
    given = ("a", "b", "c")
    held_out = ({"c"}, {"a", "c"}, {"b", "c"})
    keys = [RunKey("", given, frozenset(names)) for names in held_out]
    content = records_of(pd.DataFrame(lines, columns=names), keys)
    average = LooVal().choose(content)
    worst = LooVal(criterion="worst_environment").choose(content)
    assert (average.steps[0], average.accuracy[0]) == pytest.approx((10, 0.6))
    assert (worst.steps[0], worst.accuracy[0]) == pytest.approx((20, 0.5))


def test_the_worst_class_and_the_mean_over_classes() -> None:
    """By hand: errors by class in two environments, at three steps. The means of all are 0.8, 0.7
    and 0.7; the worst classes 0.2, 0.5 and 0.4; the means over classes 0.6, 0.65 and 0.7.
    """
    lines = []
    for step, env, wrong, worst, balanced in (
        (10, "a", 1, 8, 5), (10, "b", 3, 4, 3),
        (20, "a", 3, 5, 4), (20, "b", 3, 3, 3),
        (30, "a", 3, 3, 3), (30, "b", 3, 6, 3),
    ):  # fmt: skip
        by_class = {"worst_class_wrong": worst, "balanced_wrong": balanced}
        lines.append({**row(step, env, wrong), **by_class})
    assert chosen(TrainVal(), lines) == pytest.approx((10, 0.8))
    assert chosen(TrainVal(criterion="worst_group"), lines) == pytest.approx((20, 0.5))
    assert chosen(TrainVal(criterion="balanced"), lines) == pytest.approx((30, 0.7))
    held_out = [{**line, "env_held_out": True} for line in lines]
    assert chosen(Oracle(criterion="worst_group"), held_out) == pytest.approx((30, 0.4))
    assert chosen(OodVal(["a"], criterion="worst_group"), held_out) == pytest.approx((30, 0.7))


@pytest.mark.parametrize("criterion", ["worst_group", "balanced"])
def test_rows_without_errors_by_class_choose_nothing(criterion: str) -> None:
    """A step that lacks them in one environment does not count either."""
    lines = [row(10, "a", 1), row(10, "b", 3)]
    choices = TrainVal(criterion=criterion).choose(records(lines))
    assert choices.steps[0] == -1
    assert "trainer.class_errors=true" in choices.reason[0]
    assert f"selection.criterion={criterion}" in choices.reason[0]
    half = [
        {**lines[0], "worst_class_wrong": 2.0, "balanced_wrong": 1.0},
        {**lines[1], "worst_class_wrong": math.nan, "balanced_wrong": math.nan},
    ]
    assert TrainVal(criterion=criterion).choose(records(half)).steps[0] == -1


def test_the_criterion_stands_in_the_title_and_an_unknown_one_is_refused() -> None:
    worst = TrainVal(criterion="worst_environment")
    assert describe(worst) == "selection: training-domain validation, worst environment"
    assert describe(TrainVal()) == "selection: training-domain validation"
    assert (TrainVal().rule, worst.rule) == ("train_val", "train_val (worst_environment)")
    for unknown in ("worst", "class", None):
        with pytest.raises(ConfigError, match=f"selection.criterion={unknown} is unknown") as fault:
            TrainVal(criterion=unknown)  # type: ignore[arg-type]
        assert "\n" not in str(fault.value)

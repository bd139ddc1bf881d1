"""Selection over several runs: other runs' test accuracy, named environments, pooled images,
draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from dgbench.analysis.draws import UncountedRuns, choose_draws
from dgbench.analysis.evaluations import Choices, Records, RunKey
from dgbench.analysis.selection import Last, LooVal, OodVal, Oracle, TrainVal, Yu2024
from dgbench.errors import ConfigError

GIVEN = ("a", "b", "c")
# held out, step, environment, subset, accuracy, images seen
Line = tuple[str, int, str, str, float, float]


def records(lines: Iterable[Line], draw: int = 0, seed: int = 0) -> Records:
    """One run for each set of held-out environments, e.g. ``bc``."""
    lines = list(lines)
    held = list(dict.fromkeys(line[0] for line in lines))
    keys = [RunKey("g", GIVEN, frozenset(name), seed, draw) for name in held]
    return Records(
        keys,
        list(GIVEN),
        ["val", "test"],
        np.array([held.index(line[0]) for line in lines]),
        np.array([line[1] for line in lines]),
        np.array([GIVEN.index(line[2]) for line in lines]),
        np.array([("val", "test").index(line[3]) for line in lines]),
        np.array([line[2] in line[0] for line in lines]),
        np.array([line[4] for line in lines]),
        np.array([line[5] for line in lines]),
    )


def test_loo_val_judges_by_runs_that_hold_out_one_more() -> None:
    """Run {a}: at step 1 run {a, b} has .6 on b and run {a, c} has .4 on c, mean .5; at step 2 .7
    and .5, mean .6.

    Accuracies on a and of val never count.
    """
    table = records([
        ("a", 1, "a", "test", 0.9, 1), ("a", 2, "a", "test", 0.1, 1),
        ("ab", 1, "b", "test", 0.6, 1), ("ab", 1, "a", "test", 0.99, 1),
        ("ab", 2, "b", "test", 0.7, 1),
        ("ac", 1, "c", "test", 0.4, 1), ("ac", 2, "c", "test", 0.5, 1),
        ("ac", 1, "c", "val", 1.0, 1),
    ])  # fmt: skip
    choices = LooVal().choose(table)
    assert choices.steps.tolist() == [2, -1, -1]
    assert choices.accuracy[0] == pytest.approx(0.6)
    assert "holds out c beside a" in choices.reason[1]


def test_loo_val_drops_steps_without_every_judge_or_the_run_itself() -> None:
    """Step 2 lacks run {a, c}; step 3 lacks the run {a} itself.
    Step 1 remains, though it is worst.
    """
    table = records([
        ("a", 1, "a", "test", 0.9, 1), ("a", 2, "a", "test", 0.1, 1),
        ("ab", 1, "b", "test", 0.1, 1), ("ab", 2, "b", "test", 0.7, 1),
        ("ab", 3, "b", "test", 0.9, 1),
        ("ac", 1, "c", "test", 0.1, 1), ("ac", 3, "c", "test", 0.9, 1),
    ])  # fmt: skip
    assert LooVal().choose(table).steps[0] == 1


def test_loo_val_names_the_missing_run() -> None:
    table = records([("a", 1, "a", "test", 0.9, 1), ("ab", 1, "b", "test", 0.1, 1)])
    assert LooVal().choose(table).reason[0].endswith(" holds out c beside a")


def test_loo_val_of_the_run_that_holds_nothing_out() -> None:
    """It is judged by the leave-one-out runs themselves: (.2 + .4 + .6) / 3 at step 1."""
    table = records([
        ("", 1, "a", "test", 0.9, 1), ("a", 1, "a", "test", 0.2, 1), ("b", 1, "b", "test", 0.4, 1),
        ("c", 1, "c", "test", 0.6, 1),
    ])  # fmt: skip
    choices = LooVal().choose(table)
    assert (choices.steps[0], choices.accuracy[0]) == (1, pytest.approx(0.4))


def test_ood_val_uses_named_environments() -> None:
    """b is for validation: step 2 is best on it, first on the tie with step 3. c is tested."""
    table = records([
        ("bc", 1, "b", "val", 0.5, 1), ("bc", 2, "b", "val", 0.7, 1), ("bc", 3, "b", "val", 0.7, 1),
        ("bc", 1, "c", "val", 0.9, 1), ("c", 1, "c", "val", 0.9, 1),
    ])  # fmt: skip
    method = OodVal(["b"])
    choices = method.choose(table)
    assert choices.steps.tolist() == [2, -1]
    assert choices.reason[1].startswith("no val rows of b")
    assert (method.validation_environments, method.title) == (("b",), "OoD validation on b")
    assert not method.uses_test_environments
    with pytest.raises(ConfigError, match="list"):
        OodVal("photo")


def test_yu2024_pools_images() -> None:
    """Step 1: (90 + 1) / 110 right; step 2: (50 + 6) / 110.

    The unweighted mean prefers step 2 (.55 against .5).
    """
    table = records([
        ("c", 1, "a", "val", 0.9, 100), ("c", 1, "b", "val", 0.1, 10),
        ("c", 2, "a", "val", 0.5, 100), ("c", 2, "b", "val", 0.6, 10),
    ])  # fmt: skip
    assert Yu2024().choose(table).accuracy.tolist() == [pytest.approx(91 / 110)]
    assert TrainVal().choose(table).steps.tolist() == [2]


def test_oracle_takes_the_mean_of_several_held_out_environments() -> None:
    table = records([
        ("bc", 1, "b", "val", 0.9, 1), ("bc", 1, "c", "val", 0.9, 1),
        ("bc", 2, "b", "val", 0.2, 1), ("bc", 2, "c", "val", 0.4, 1),
    ])  # fmt: skip
    choices = Oracle().choose(table)
    assert (choices.steps[0], choices.accuracy[0]) == (2, pytest.approx(0.3))


def search(
    accuracies: list[float], seed: int = 0, first: int = 0
) -> tuple[list[RunKey], list[float]]:
    keys = [
        RunKey("g", GIVEN, frozenset("a"), seed, first + draw) for draw in range(len(accuracies))
    ]
    return keys, accuracies


def choices_of(accuracies: list[float], judged: bool = True) -> Choices:
    count = len(accuracies)
    return Choices(np.ones(count, dtype=np.int64), np.array(accuracies), np.full(count, judged))


@pytest.mark.parametrize(
    ("accuracies", "kept"),
    [
        ([0.1, 0.3, 0.2], 1),
        ([0.3, 0.1, 0.3], 2),
        ([math.nan, 0.1, math.nan], 1),
        ([math.nan, math.nan], 1),
        ([0.2], 0),
    ],
    ids=["highest", "tie: largest draw", "NaN lowest", "only NaN: largest draw", "one draw"],
)
def test_draw_of_a_search(accuracies: list[float], kept: int) -> None:
    keys, values = search(accuracies)
    draws = choose_draws(keys, choices_of(values), TrainVal())
    assert set(range(len(keys))) - draws.lost.keys() == {kept}
    assert not draws.stuck


def test_yu2024_searches_with_the_first_seed_only() -> None:
    """Seed 0 ran draws 1 to 3 and ties at draws 1 and 2: the first.

    Seeds 1 and 2 ran draws 1 and 2 of it.
    """
    keys, values = search([0.5, 0.5, 0.4], seed=0, first=1)
    keys += [
        RunKey("g", GIVEN, frozenset("a"), seed, draw) for seed, draw in ((1, 1), (2, 1), (2, 2))
    ]
    why = choose_draws(keys, choices_of([*values, 0.1, 0.1, 0.9]), Yu2024()).lost
    assert set(range(6)) - why.keys() == {0, 3, 4}
    assert why[5].startswith("draw 1 ")


def test_a_failed_draw_does_not_take_part() -> None:
    keys, values = search([0.9, 0.3])
    choices = choices_of(values)
    choices.reason[0] = "failed"
    assert choose_draws(keys, choices, TrainVal()) == UncountedRuns()


def test_without_an_accuracy_no_draw_is_chosen() -> None:
    keys, values = search([0.9, 0.3])
    draws = choose_draws(keys, choices_of(values, judged=False), Oracle())
    assert not draws.lost
    assert set(draws.stuck.values()) == {"selection=oracle cannot choose among 2 draws here"}
    assert not Last.chooses_draws


def test_other_held_out_sets_are_other_searches() -> None:
    keys = [RunKey("g", GIVEN, frozenset(held), 0, draw) for held in ("a", "ab") for draw in (0, 1)]
    assert choose_draws(keys, choices_of([0.2, 0.1, 0.1, 0.2]), TrainVal()).lost.keys() == {1, 2}


def test_protocols_are_searches_of_their_own() -> None:
    keys = [
        RunKey("g", GIVEN, frozenset("a"), 0, 0, protocol) for protocol in ("loo", "multi_test")
    ]
    assert choose_draws(keys, choices_of([0.2, 0.1]), TrainVal()) == UncountedRuns()

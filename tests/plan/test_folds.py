"""Leave one environment out: the folds by hand."""

from __future__ import annotations

import pytest

from dgbench.errors import ConfigError
from dgbench.plan.folds import Fold, LeaveOneOut

GIVEN = ["0.90", "0.80", "0.10"]
ALL = [
    Fold("0", ("0.80", "0.10"), ("0.90",)),
    Fold("1", ("0.90", "0.10"), ("0.80",)),
    Fold("2", ("0.90", "0.80"), ("0.10",)),
    Fold("full", ("0.90", "0.80", "0.10"), ()),
]


def test_three_environments() -> None:
    """Each held out once, in the given order (no sorting), and one fold on all of them."""
    assert LeaveOneOut()(GIVEN) == ALL


@pytest.mark.parametrize("asked", [[0, "full"], ["full", "0"], ["0", "full", "full"]])
def test_a_part_is_the_same_folds_in_their_usual_order(asked: list[str | int]) -> None:
    assert LeaveOneOut(folds=asked)(GIVEN) == [ALL[0], ALL[3]]


@pytest.mark.parametrize("asked", [[3], ["-1"], ["0.90"], [0, "Full"], []])
def test_an_unknown_fold_is_named(asked: list[str | int]) -> None:
    with pytest.raises(ConfigError, match=r"protocol\.folds=.*choose from 0, 1, 2, full") as caught:
        LeaveOneOut(folds=asked)(GIVEN)
    assert str(asked[-1] if asked else "[]") in str(caught.value)


@pytest.mark.parametrize("given", [[], ["0.10"]])
def test_fewer_than_two_environments(given: list[str]) -> None:
    with pytest.raises(ConfigError, match=rf"least 2 given environments.*{len(given)}"):
        LeaveOneOut()(given)


def test_two_environments_are_enough() -> None:
    folds = LeaveOneOut()(["a", "b"])
    assert folds == [
        Fold("0", ("b",), ("a",)),
        Fold("1", ("a",), ("b",)),
        Fold("full", ("a", "b"), ()),
    ]


def test_titles() -> None:
    assert [fold.title for fold in ALL] == [
        "hold out 0.90",
        "hold out 0.80",
        "hold out 0.10",
        "all given environments",
    ]


def test_one_fold_needs_no_brackets() -> None:
    """``protocol.folds=full`` and ``protocol.folds=0`` reach the protocol as a word and a
    number.
    """
    given = ["a", "b", "c"]
    assert [fold.name for fold in LeaveOneOut(folds="full")(given)] == ["full"]
    assert [fold.held_out for fold in LeaveOneOut(folds=0)(given)] == [("a",)]

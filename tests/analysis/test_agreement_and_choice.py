"""Rank correlations and selection against arithmetic done by hand."""

from __future__ import annotations

import math

import pytest

from dgbench.analysis import degradation, kendall, select, spearman
from dgbench.errors import MeasureError


def test_hand_worked_correlations() -> None:
    """Ranks 1 2 3 4 against 1 3 2 4.

    Spearman: 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15) = 0.8.
    Kendall: of 6 pairs 5 agree and 1 does not: 4 / 6.
    """
    first = {"erm": 0.1, "irm": 0.2, "vrex": 0.3, "mmd": 0.4}
    # another order of keys must not matter
    second = {
        "mmd": 0.9,
        "vrex": 0.2,
        "irm": 0.3,
        "erm": 0.1,
    }
    assert spearman(first, second) == pytest.approx(0.8)
    assert kendall(first, second) == pytest.approx(4 / 6)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)


def test_ties() -> None:
    """(1, 1, 2) against (1, 2, 3).

    Spearman on mean ranks 1.5 1.5 3: covariance 1.5, variances 1.5 and 2 (sums): 1.5 / sqrt(3).
    Kendall's tau-b: 2 agreeing pairs, 1 tie in the first: 2 / sqrt(2 * 3).
    """
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(1.5 / math.sqrt(3))
    assert kendall([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / math.sqrt(6))


@pytest.mark.parametrize("correlate", [spearman, kendall])
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([0.1], [0.2], "2 or more algorithms"),
        ([0.1, 0.1], [0.2, 0.3], "equal for all"),
        ([0.1, math.nan], [0.2, 0.3], "NaN"),
        ([0.1, 0.2], [0.2], "2 values against 1"),
        ({"erm": 0.1, "irm": 0.2}, {"erm": 0.1, "mmd": 0.2}, r"irm, mmd"),
        ({"erm": 0.1, "irm": 0.2}, [0.1, 0.2], "two mappings.*two sequences"),
    ],
)
def test_bad_input(correlate, first, second, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(MeasureError, match=message):
        correlate(first, second)


def test_selection_and_its_cost() -> None:
    """irm is picked with ideal error 0.5 where vrex has 0.28: 0.22 lost."""
    ideal = {"erm": 0.8, "irm": 0.5, "vrex": 0.28}
    assert select({"erm": 0.3, "irm": 0.2, "vrex": 0.25}) == ("irm",)
    assert degradation(ideal, "irm") == pytest.approx(0.22)
    assert degradation(ideal, "vrex") == 0


def test_ties_name_all_in_alphabetical_order() -> None:
    assert select({"vrex": 0.2, "erm": 0.2, "irm": 0.3}) == ("erm", "vrex")


def test_bad_selection() -> None:
    with pytest.raises(MeasureError, match="no algorithm"):
        select({})
    with pytest.raises(MeasureError, match="erm is NaN"):
        select({"erm": math.nan})
    with pytest.raises(MeasureError, match=r"ideal error.*irm"):
        degradation({"erm": 0.1}, "irm")


def test_values_that_differ_by_rounding_alone_tie() -> None:
    values = {"vrex": 0.1 + 0.2, "erm": 0.3, "irm": 0.30001}
    assert select(values) == ("erm", "vrex")
    assert degradation(values, "vrex") == 0
    assert degradation(values, "irm") == pytest.approx(1e-5)

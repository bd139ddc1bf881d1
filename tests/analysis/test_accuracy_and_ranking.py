"""Averages over domains and seeds, places, ranking scores and oracle leakage,
worked out by hand.
"""

from __future__ import annotations

import math

import pytest

from dgbench.analysis.accuracy import (
    domain_std,
    mean,
    mean_interval,
    oracle_leakage,
    overall,
    rank_changes,
    ranking_score,
    ranks,
    spread,
)
from dgbench.errors import MeasureError


def test_error_bars_have_their_names() -> None:
    """Values 1, 2, 3: squares sum to 2.

    Population std sqrt(2/3), over sqrt(3); sample std 1, over sqrt(3).
    """
    values = [1.0, 2.0, 3.0]
    assert spread(values, "domainbed") == pytest.approx(math.sqrt(2 / 3) / math.sqrt(3))
    assert spread(values, "standard_deviation") == pytest.approx(1)
    assert spread(values, "standard_error") == pytest.approx(1 / math.sqrt(3))
    assert spread([1.0], "domainbed") is None
    assert spread([1.0], "standard_error") is None
    with pytest.raises(MeasureError, match="domainbed"):
        spread(values, "sem")


def test_interval_of_a_mean_by_hand() -> None:
    """.60 .70 .80: s = .1, / sqrt(3) = .0577, t(2) = 4.3027 at 95%: .7 +- .2484.

    One value has none.
    """
    found = mean_interval([0.6, 0.7, 0.8])
    assert (found.estimate, found.low, found.high) == pytest.approx((0.7, 0.4516, 0.9484), abs=1e-4)
    assert mean_interval([0.6, 0.7, 0.8], level=0.5).high == pytest.approx(
        0.7 + 0.8165 * 0.1 / 3**0.5, abs=1e-5
    )
    with pytest.raises(MeasureError, match=r"1 value.*interval"):
        mean_interval([0.6])


def test_nico_summaries() -> None:
    """Accuracies .8 on 30 images and .4 on 10: average .6, overall (24 + 4) / 40 = .7, squares sum
    to .08.
    """
    accuracies = {"a": 0.8, "b": 0.4}
    assert mean(list(accuracies.values())) == pytest.approx(0.6)
    assert overall(accuracies, {"a": 30, "b": 10}) == pytest.approx(0.7)
    assert domain_std([0.8, 0.4]) == pytest.approx(math.sqrt(0.08))
    assert domain_std([0.8, 0.4], "K") == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: overall({"a": 0.5}, {}), "number.*images unknown"),
        (lambda: domain_std([0.5]), "1 test domain.*divisor K-1.*exist"),
        (lambda: domain_std([0.5, 0.6], "N"), "choose one of K-1, K"),
        (lambda: mean([]), "no accuracy"),
        (lambda: ranks({"a": math.nan}), "value.*NaN"),
        (lambda: ranking_score(0.5, 0.5, -0.1), "error bar of -0.1"),
        (lambda: oracle_leakage([0.1], [[0.1], [0.2]]), "1 validation accuracies.*test accuracies"),
        (lambda: oracle_leakage([0.1], [[math.nan]]), "NaN"),
    ],
)
def test_what_has_no_value_says_why(call: object, message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        call()  # type: ignore[operator]


def test_places_share_the_better_one() -> None:
    assert ranks({"a": 0.5, "b": 0.7, "c": 0.5, "d": 0.1}) == {"a": 2, "b": 1, "c": 2, "d": 4}


def test_places_won_among_the_algorithms_of_both() -> None:
    """Old order b, a, c without d: after that a, c, b."""
    assert rank_changes({"a": 2, "b": 3, "c": 1, "d": 9}, {"a": 3, "b": 1, "c": 2}) == {
        "a": 1,
        "b": -2,
        "c": 1,
    }


@pytest.mark.parametrize(
    ("value", "score"), [(63.5, 0), (63.6, 1), (63.1, 0), (63.0, -1), (63.3, 0)]
)
def test_the_ends_of_the_error_bar_are_within(value: float, score: int) -> None:
    """ERM's OfficeHome in OoD-Bench, 63.3 ± 0.2, where 63.3 + 0.2 and 63.5 differ as floating-point
    numbers may.
    """
    assert ranking_score(value, 63.3, 0.2) == score


def test_leakage_by_hand() -> None:
    """Candidates (validation; domains a, b): (.9; .5, .5), (.8; .9, .1), (.7; .2, .7).

    Validation selects the first: average .5. K=1: a by the second (.9), b by the third (.7),
    average .8, leakage .3.
    K=2: means .5, .5, .45: the later of the tied, (.9, .1), average .5, leakage 0: 100% less.
    """
    blind, one, two = oracle_leakage([0.9, 0.8, 0.7], [[0.5, 0.5], [0.9, 0.1], [0.2, 0.7]])
    assert (blind.accuracies, blind.average, blind.leakage) == ((0.5, 0.5), 0.5, 0)
    assert (one.accuracies, one.average, one.leakage) == (
        (0.9, 0.7),
        pytest.approx(0.8),
        pytest.approx(0.3),
    )
    assert (two.accuracies, two.leakage) == ((0.9, 0.1), 0)


def test_leakage_averages_a_domain_over_the_sets_that_hold_it() -> None:
    """Three domains, K=2. Candidates (1, 0, 0), (0, 1, 1): sets ab and ac tie at .5 and take the
    second, bc too.

    a: mean of 0 and 0; b and c: mean of 1 and 1.
    """
    found = oracle_leakage([0.2, 0.1], [[1, 0, 0], [0, 1, 1]])
    assert [line.test_domains for line in found] == [0, 1, 2, 3]
    assert found[2].accuracies == (0, 1, 1)

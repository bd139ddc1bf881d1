"""Friedman's test against scipy, Nemenyi's critical values against the published table."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, friedmanchisquare

from dgbench.analysis import critical_difference, friedman, indistinct_groups, sign_test
from dgbench.analysis.comparison import nemenyi_quantile
from dgbench.errors import MeasureError

# Demsar 2006, Table 5(a), k = 2 ... 10
PUBLISHED = {
    0.05: (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164),
    0.10: (1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920),
}


@pytest.mark.parametrize("alpha", PUBLISHED)
def test_quantiles_are_the_published_ones(alpha: float) -> None:
    found = [nemenyi_quantile(k, alpha) for k in range(2, 11)]
    assert found == pytest.approx(PUBLISHED[alpha], abs=1.1e-3)


def test_critical_difference_of_demsars_example() -> None:
    """4 classifiers on 14 data sets: CD = 2.569 sqrt(4 * 5 / (6 * 14)) = 1.25 (section 3.2.4)."""
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)


def test_demsars_friedman_example() -> None:
    """His Table 6: mean ranks 3.143, 2.000, 2.893, 1.964; chi2 = 9.28 and F = 3.69 with (3, 39)
    degrees of freedom.
    """
    auc = [
        (0.763, 0.768, 0.771, 0.798), (0.599, 0.591, 0.590, 0.569), (0.954, 0.971, 0.968, 0.967),
        (0.628, 0.661, 0.654, 0.657), (0.882, 0.888, 0.886, 0.898), (0.936, 0.931, 0.916, 0.931),
        (0.661, 0.668, 0.609, 0.685), (0.583, 0.583, 0.563, 0.625), (0.775, 0.838, 0.866, 0.875),
        (1.000, 1.000, 1.000, 1.000), (0.940, 0.962, 0.965, 0.962), (0.619, 0.666, 0.614, 0.669),
        (0.972, 0.981, 0.9751, 0.975), (0.957, 0.978, 0.946, 0.970),
    ]  # fmt: skip
    found = friedman(-np.array(auc))
    assert found.mean_ranks == pytest.approx((3.143, 2.000, 2.893, 1.964), abs=1e-3)
    assert found.statistic == pytest.approx(friedmanchisquare(*np.array(auc).T).statistic)
    assert found.statistic > 9.28  # he does not correct for ties
    assert found.p_value_f < 0.05


@pytest.mark.parametrize("decimals", [8, 1])
def test_equals_scipy(decimals: int) -> None:
    table = np.random.default_rng(0).normal(size=(12, 14)).round(decimals)
    found, peer = friedman(table), friedmanchisquare(*table.T)
    assert found.statistic == pytest.approx(peer.statistic)
    assert found.p_value == pytest.approx(peer.pvalue)
    assert found.blocks == 12


def test_false_alarms_are_as_rare_as_promised() -> None:
    source = np.random.default_rng(1)
    alarms = sum(friedman(source.normal(size=(10, 5))).p_value_f < 0.05 for _ in range(600))
    assert 0.02 < alarms / 600 < 0.09


def test_sign_test_by_hand() -> None:
    """6 of 6: 2 / 64. 5 of 6: 2 (6 + 1) / 64. 3 of 6: 1. It is scipy's binomial test."""
    assert [sign_test(6, 0), sign_test(1, 5), sign_test(3, 3), sign_test(0, 0)] == [
        2 / 64,
        14 / 64,
        1,
        1,
    ]
    assert sign_test(9, 3) == pytest.approx(binomtest(9, 12).pvalue)


def test_groups_are_largest_and_overlap() -> None:
    ranks = {"a": 1.0, "b": 1.8, "c": 2.6, "d": 5.0}
    assert indistinct_groups(ranks, 1.0) == [("a", "b"), ("b", "c")]
    assert indistinct_groups(ranks, 2.0) == [("a", "b", "c")]
    assert indistinct_groups(ranks, 0.1) == []


def test_too_little_to_rank() -> None:
    with pytest.raises(MeasureError, match="2 or more blocks"):
        friedman(np.zeros((1, 4)))
    with pytest.raises(MeasureError, match=r"tie.*block"):
        friedman(np.zeros((3, 4)))
    with pytest.raises(MeasureError, match="no critical difference"):
        critical_difference(1, 3)

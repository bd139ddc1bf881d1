"""Welch's interval against scipy, a case by hand, and its coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_ind

from dgbench.analysis import SampleSummary, compatible
from dgbench.errors import MeasureError


def sample(values: np.ndarray) -> SampleSummary:
    return SampleSummary(float(values.mean()), float(values.std(ddof=1)), len(values))


def test_equals_scipy() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=4), 3 * rng.normal(size=7) + 1
    found = compatible(sample(first), sample(second), 0.9)
    peer = ttest_ind(first, second, equal_var=False).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((peer.low, peer.high))
    assert found.estimate == pytest.approx(first.mean() - second.mean())


def test_means_that_lie_far_apart_are_no_agreement() -> None:
    """-0.46 +- 0.07 and 0.17 +- 0.09 over 3 seeds each.

    Variances of the means 0.0049 / 3 and 0.0081 / 3, together 0.00433; degrees of freedom 0.00433^2
    / ((0.00163^2 + 0.0027^2) / 2) = 3.77; t(3.77, 0.975) = 2.845; half width 2.845 * 0.0658 =
    0.187.
    """
    found = compatible(SampleSummary(-0.46, 0.07, 3), SampleSummary(0.17, 0.09, 3))
    assert (found.low, found.high) == pytest.approx((-0.63 - 0.187, -0.63 + 0.187), abs=1e-3)
    assert found.excludes_zero
    assert not compatible(SampleSummary(0.2, 0.09, 3), SampleSummary(0.42, 0.17, 3)).excludes_zero


def test_without_any_spread_the_interval_is_a_point() -> None:
    found = compatible(SampleSummary(0.5, 0.0, 3), SampleSummary(0.25, 0.0, 2))
    assert (found.estimate, found.low, found.high) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    "bad",
    [
        SampleSummary(0.1, 0.2, 1),
        SampleSummary(0.1, None, 3),
        SampleSummary(0.1, -1, 3),
        SampleSummary(float("nan"), 1, 3),
    ],
)
def test_what_cannot_be_compared(bad: SampleSummary) -> None:
    with pytest.raises(MeasureError, match="cannot be compared; 2 or more values"):
        compatible(SampleSummary(0.1, 0.1, 3), bad)


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("ratio", [1, 3])
def test_it_covers(n: int, ratio: float) -> None:
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(1500):
        found = compatible(sample(rng.normal(size=n)), sample(ratio * rng.normal(size=n)))
        hits += found.low <= 0 <= found.high
    assert 0.93 <= hits / 1500 <= 0.985

"""Intervals by hand, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from dgbench.analysis.shift_verdicts import half_sampling, spread_of_trials
from dgbench.errors import MeasureError
from dgbench.shift.pairs import half

T_2 = 4.302652730  # Student's t of 2 degrees of freedom at 0.975


def test_the_deviation_of_halves_is_the_standard_error() -> None:
    """Standard deviation of 1, 2, 3 (divisor 2): 1. Their mean does not matter."""
    assert half_sampling(0.5, [1, 2, 3]) == pytest.approx((0.5 - T_2, 0.5 + T_2), rel=1e-8)
    low, high = half_sampling(0, [0, 1] * 4, level=0.9)
    assert (low, high) == pytest.approx(
        (-1.894579 * np.sqrt(2 / 7), 1.894579 * np.sqrt(2 / 7)), rel=1e-6
    )


def test_trials_have_a_mean() -> None:
    assert spread_of_trials(2, [1, 2, 3]) == pytest.approx(
        (2 - T_2 / np.sqrt(3), 2 + T_2 / np.sqrt(3)), rel=1e-8
    )


@pytest.mark.parametrize("values", [[], [1.0], [[1.0, 2.0]]])
def test_too_few(values: list[float]) -> None:
    with pytest.raises(MeasureError, match=r"halves.*standard deviation.*halves=2.*more"):
        half_sampling(0, values)
    with pytest.raises(MeasureError, match="use trials=2 or more"):
        spread_of_trials(0, values)


def test_half_sampling_covers_the_mean_of_the_law() -> None:
    rng = np.random.default_rng(0)
    y = np.zeros(60, dtype=int)
    hits = 0
    for _ in range(1000):
        x = rng.normal(size=60)
        low, high = half_sampling(x.mean(), [x[half(y, rng)].mean() for _ in range(8)])
        hits += low <= 0 <= high
    assert 0.92 < hits / 1000 < 0.97

"""What seeds resolve: by hand and against simulated studies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t

from dgbench.analysis.comparison import separated
from dgbench.analysis.intervals import Interval
from dgbench.analysis.power import (
    detectable,
    deviation_of,
    pair_deviations,
    pairs,
    seeds_needed,
)
from dgbench.errors import MeasureError


def typical(values: np.ndarray) -> Interval:
    every = pairs(values)
    return deviation_of([pair.deviation for pair in every], [pair.seeds for pair in every])


def found(
    rng: np.random.Generator, difference: float, seeds: int, algorithms: int, trials: int
) -> float:
    """How often the one-sided paired t-test of `separated` finds a difference whose deviation
    is 1.
    """
    values = rng.normal(size=(trials, seeds)) + difference
    statistic = values.mean(axis=1) / values.std(axis=1, ddof=1) * math.sqrt(seeds)
    return float((statistic > t.ppf(1 - 0.05 / max(2, algorithms - 1), seeds - 1)).mean())


@pytest.mark.parametrize("algorithms", [2, 3, 14])
@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 30])
def test_a_detectable_difference_is_found_in_four_of_five_studies(
    seeds: int, algorithms: int
) -> None:
    rng = np.random.default_rng([seeds, algorithms])
    rate = found(rng, detectable(1.0, seeds, algorithms), seeds, algorithms, 20_000)
    assert rate == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / 20_000))


def test_the_test_is_that_of_the_bold_line() -> None:
    """In simulated tables of 5 algorithms, one of which is better than all others, which are far
    apart.
    """
    rng = np.random.default_rng(0)
    size = detectable(math.sqrt(2), 4, 5)
    means = np.array([0.0, size, 1e3, 2e3, 3e3])[:, None]
    alone = [len(separated(rng.normal(size=(5, 4)) + means).candidates) == 1 for _ in range(2000)]
    assert np.mean(alone) == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / 2000))


def test_predicted_seeds_are_those_that_simulated_studies_need() -> None:
    """Where deviations are known: within 20% in 95% of 60 random cases."""
    rng, close = np.random.default_rng(1), []
    for _ in range(60):
        algorithms, difference = int(rng.integers(2, 15)), float(rng.uniform(0.3, 2))
        predicted = int(seeds_needed(1.0, difference, algorithms))
        values = rng.normal(size=(4000, 2 * predicted + 4)) + difference
        counts = np.arange(1, values.shape[1] + 1)
        mean = np.cumsum(values, axis=1) / counts
        variance = (np.cumsum(values**2, axis=1) - counts * mean**2)[:, 1:] / (counts - 1)[1:]
        statistic = mean[:, 1:] / np.sqrt(variance / counts[1:])
        power = (statistic > t.ppf(1 - 0.05 / max(2, algorithms - 1), counts[1:] - 1)).mean(axis=0)
        needed = int(counts[1:][power >= 0.8][0])
        close.append(abs(predicted - needed) <= max(1, 0.2 * needed))
    assert np.mean(close) >= 0.95


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_interval_of_a_deviation_holds_it(seeds: int) -> None:
    """Exactly 95% for two algorithms; at least that for the typical pair of several, which share
    seeds.
    """
    rng, trials = np.random.default_rng(seeds), 1000
    for algorithms in (2, 6):
        spread = [typical(rng.normal(size=(algorithms, seeds))) for _ in range(trials)]
        holds = np.mean([each.low <= math.sqrt(2) <= each.high for each in spread])
        assert holds >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / trials)
        assert algorithms > 2 or holds <= 0.95 + 4 * math.sqrt(0.05 * 0.95 / trials)
        below = np.mean([each.estimate < math.sqrt(2) for each in spread])
        assert below == pytest.approx(
            0.5, abs=0.1 if algorithms > 2 else 4 * math.sqrt(0.25 / trials)
        )


def test_three_seeds_leave_a_deviation_uncertain_by_a_factor_of_six() -> None:
    interval = typical(np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]))  # deviation 1
    assert (interval.low, interval.estimate, interval.high) == pytest.approx(
        (math.sqrt(2 / 7.3778), math.sqrt(2 / 1.38629), math.sqrt(2 / 0.050636)), rel=1e-4
    )


def test_unequal_seeds_are_compared_over_those_they_share() -> None:
    nan = math.nan
    values = [[1.0, 2.0, 3.0, nan], [nan, 1.0, 1.0, 1.0], [nan, nan, nan, 0.0]]
    [pair] = pairs(values)
    assert (pair.first, pair.second, pair.seeds, pair.size) == (1, 0, 2, 1.5)
    assert pair.deviation == pytest.approx(math.sqrt(0.5))
    with pytest.raises(MeasureError, match="share 2 seeds"):
        typical(np.array([[1.0], [2.0]]))


def test_seeds_needed_is_the_fewest() -> None:
    for difference in (0.05, 0.3, 1.0, 20.0):
        seeds = int(seeds_needed(1.0, difference, 14))
        assert detectable(1.0, seeds, 14) <= difference
        assert seeds == 2 or detectable(1.0, seeds - 1, 14) > difference
    assert seeds_needed(1.0, 1e-6) == math.inf
    with pytest.raises(MeasureError, match="above 0"):
        seeds_needed(1.0, 0.0)


def test_deviations_of_all_pairs_are_those_of_single_pairs() -> None:
    """Seeds are missing here and there, so that 6 of 15 pairs share fewer than 2."""
    values = np.random.default_rng(3).normal(size=(6, 4))
    values[1, 2] = values[4, :2] = values[5, :3] = np.nan
    deviations, seeds = pair_deviations(values)
    every = pairs(values)
    assert len(deviations) == len(every) == 9
    assert seeds.tolist() == [pair.seeds for pair in every]
    assert deviations == pytest.approx([pair.deviation for pair in every], rel=1e-12)
    assert [len(part) for part in pair_deviations(values[:, :1])] == [0, 0]

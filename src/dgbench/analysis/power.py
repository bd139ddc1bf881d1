"""What a number of seeds can tell: the smallest difference they find, and when to stop.

Seeds are the independent units and pair the algorithms: what counts is the deviation, over seeds,
of the difference of two. Folds and environments are inside each seed's value. The test is that of
:func:`~dgbench.analysis.comparison.separated`, a one-sided paired t-test at ``alpha / max(2, A -
1)`` (Bonferroni's division), so a difference of two algorithms alone is tested two-sided at
``alpha``.

What may be looked at after every seed is in :mod:`dgbench.analysis.evidence`.

Sources: Cohen 1988 and Lehmann & Romano 2005, section 5.3 (power by the noncentral t distribution).
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dgbench.analysis.comparison import error_of_each
from dgbench.analysis.distributions import (
    chi_square_quantile,
    noncentral_t_sf,
    normal_quantile,
    t,
)
from dgbench.analysis.evidence import evidence
from dgbench.analysis.intervals import Floats, Interval
from dgbench.errors import MeasureError

_MOST_SEEDS = 1_000_000


@dataclass(frozen=True, eq=False)
class PairedDifferences:
    """Two algorithms over the seeds that both have, 2 or more."""

    first: int  #: position of the one with the lower mean, the earlier one if they tie
    second: int
    differences: Floats  #: (S,) value of the second less that of the first

    @property
    def seeds(self) -> int:
        return len(self.differences)

    @property
    def size(self) -> float:
        """Mean difference, >= 0."""
        return float(self.differences.mean())

    @property
    def deviation(self) -> float:
        """Sample standard deviation of the difference over seeds."""
        return float(self.differences.std(ddof=1))

    @property
    def evidence(self) -> float:
        """Evidence (:func:`~.evidence.evidence`) that the first is lower, if about normal."""
        return evidence(self.differences)


def pairs(values: ArrayLike) -> list[PairedDifferences]:
    """Pair every two algorithms that share 2 or more seeds.

    Args:
        values: (A, S) one value per algorithm and seed, lower is better; NaN if it is missing.
    """
    table = np.asarray(values, dtype=float)
    comparisons: list[PairedDifferences] = []
    if table.shape[1] < 2:
        return comparisons  # of a thousand algorithms there are half a million pairs
    for first, second in itertools.combinations(range(len(table)), 2):
        differences = table[second] - table[first]
        differences = differences[~np.isnan(differences)]
        if len(differences) < 2:
            continue
        if differences.mean() < 0:
            first, second, differences = second, first, -differences
        comparisons.append(PairedDifferences(first, second, differences))
    return comparisons


def pair_deviations(values: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    """Compute the deviation of every two algorithms, in the order of :func:`pairs`.

    Args:
        values: as of :func:`pairs`.

    Returns:
        (P,) sample standard deviations of their differences over the seeds that both have, and
        (P,) how many seeds that are.
    """
    table = np.asarray(values, dtype=float)
    deviations = [np.empty(0)]
    counts = [np.empty(0, dtype=np.int64)]
    algorithms, seeds = table.shape
    for first in range(algorithms if seeds > 1 else 0):
        differences = table[first + 1 :] - table[first]
        shared = (~np.isnan(differences)).sum(axis=1)
        judged = shared > 1
        deviations.append(np.nanstd(differences[judged], axis=1, ddof=1))
        counts.append(shared[judged])
    return np.concatenate(deviations), np.concatenate(counts)


def floor_of_lead(differences: ArrayLike, seeds: int, level: float = 0.95) -> float:
    """Bound the lead that one source of randomness makes by itself.

    Of two equal algorithms, ``level`` lead by less.

    Args:
        differences: (R,) of two algorithms, one per repetition that moves that source alone; 2 or
            more.
        seeds: number of seeds over which the lead is a mean.
    """
    values = np.asarray(differences, dtype=float)
    return float(t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(seeds))


def deviation_of(deviations: ArrayLike, seeds: ArrayLike, level: float = 0.95) -> Interval:
    """Estimate the deviation of a typical difference, with the interval that so few seeds leave.

    It is the median over pairs of each pair's chi-square interval with n - 1 degrees of freedom and
    of its median-unbiased estimate: a sample deviation of 3 seeds is too low in 63% of cases, so it
    is raised by 20%. Pairs share algorithms and seeds; the interval is therefore no shorter than
    that of one pair.

    Args:
        deviations: (P,) sample standard deviations of paired differences.
        seeds: (P,) or one number: how many seeds each has, 2 or more.
        level: nominal coverage.

    Raises:
        MeasureError: no pair.
    """
    samples = np.asarray(deviations, dtype=float)
    values, freedom = np.broadcast_arrays(samples, np.asarray(seeds) - 1)
    if not values.size:
        raise MeasureError(
            "no two algorithms share 2 seeds, so no difference has a deviation; train more seeds"
        )

    # a few numbers of seeds among what may be a million pairs
    few, place = np.unique(freedom, return_inverse=True)

    def median_at(share: float) -> float:
        factors = np.sqrt(few / chi_square_quantile(share, few))
        return float(np.median(values * factors[place]))

    low = median_at((1 + level) / 2)
    high = median_at((1 - level) / 2)
    return Interval(median_at(0.5), low, high, level)


@functools.cache
def noncentrality(
    seeds: int, algorithms: int = 2, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Compute how many standard errors a true difference must have to be found with that power."""
    if seeds < 2 or not alpha < power < 1:
        raise MeasureError(
            f"{seeds} seeds and a power of {power}: give 2 seeds or more and a power in ({alpha}, "
            "1)"
        )
    quantile = float(t.isf(error_of_each(algorithms, alpha), seeds - 1))
    share = (1 + power) / 2  # of normal and deviation, each
    largest_deviation = math.sqrt(float(chi_square_quantile(share, seeds - 1)) / (seeds - 1))
    low = 0.0
    high = normal_quantile(share) + quantile * largest_deviation
    middle = (low + high) / 2
    while low < middle < high:  # until no number lies between the two
        if noncentral_t_sf(quantile, seeds - 1, middle) < power:
            low = middle
        else:
            high = middle
        middle = (low + high) / 2
    return middle


def detectable(
    deviation: float, seeds: int, algorithms: int = 2, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Compute the smallest true difference of two algorithms that the seeds find with that power.

    Args:
        deviation: true standard deviation, over seeds, of the paired difference.
        seeds: 2 or more.
        algorithms: number A of the table, which share the error probability ``alpha``.
        power: probability of finding it, in (alpha, 1).
        alpha: probability of any false separation from the best.

    Returns:
        the difference, in the unit of the deviation.
    """
    return deviation * noncentrality(seeds, algorithms, power, alpha) / math.sqrt(seeds)


def seeds_needed(
    deviation: float,
    difference: float,
    algorithms: int = 2,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
) -> float:
    """Find the fewest seeds, 2 or more, that find a difference; infinite over 2^19.

    Arguments as of :func:`detectable`.

    Raises:
        MeasureError: the difference is not above 0.
    """
    if not difference > 0:
        raise MeasureError(
            f"no number of seeds finds a difference of {difference}; give one above 0"
        )
    ratio = deviation / difference
    high = 2
    while ratio * noncentrality(high, algorithms, power, alpha) > math.sqrt(high):
        high *= 2
        if high > _MOST_SEEDS:
            return math.inf
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        enough = ratio * noncentrality(middle, algorithms, power, alpha) <= math.sqrt(middle)
        if enough:
            high = middle
        else:
            low = middle
    return high

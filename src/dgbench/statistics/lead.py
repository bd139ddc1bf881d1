"""Is the algorithm with the lowest mean really better than the next, and which others may be the best?

Lower is better; negate accuracies. Seeds are the independent units, and one seed's values belong together.

The data that name the leader also judge it. Testing the leader against the runner-up with a two-sided test allows for
that, however many other algorithms there are: the worst case are two that tie and others that are far off.

Source: Gutmann & Maymin 1987, "Is the selected population the best?"; Phipson & Smyth 2010 (random relabelings); Hsu
1984, "Constrained simultaneous confidence intervals for multiple comparisons with the best".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dgbench.errors import MeasureError

#: all relabelings of as many seeds are listed; of more, so many are drawn
_MOST_LISTED, _DRAWN = 20, 9999
_EQUAL = 1e-9  #: differences of this part of the largest value are rounding


@dataclass(frozen=True)
class Lead:
    """The lowest mean against the second lowest."""

    first: int  #: position of the leader, the earlier one on ties
    second: int  #: position of the runner-up
    size: float  #: mean of the runner-up less that of the leader, >= 0
    wins: int  #: seeds in which the leader is strictly lower
    seeds: int
    as_large: int  #: relabelings with a lead of at least this size, in either direction
    relabelings: int  #: 2 ** seeds where all were listed

    @property
    def p_value(self) -> float:
        """Probability that one of two equal algorithms leads the other by so much."""
        return self.as_large / self.relabelings

    @property
    def least(self) -> float:
        """The smallest p-value that this number of seeds can give, whatever the values: 2 ** (1 - seeds)."""
        return float(2.0 ** (1 - self.seeds))


@dataclass(frozen=True)
class Separation:
    """Which algorithms may be the best: a confidence set of the one with the lowest true mean."""

    candidates: tuple[int, ...]  #: positions of the algorithms that the data cannot separate from the best
    algorithms: int
    seeds: int
    level: float  #: probability of holding the truly best algorithm

    @property
    def separates(self) -> bool:
        """Whether any algorithm is shown to be worse than the best."""
        return len(self.candidates) < self.algorithms


def lead(values: ArrayLike, *, rng: np.random.Generator | None = None) -> Lead:
    """Exact permutation test of the lead, in which each seed's two values may change places.

    It is exact where leader and runner-up are exchangeable within a seed, and rejects less often than it says where
    more algorithms tie. With 2 algorithms and 3 seeds, one wins in every seed in 2 of 8 cases, so p is never below 1/4;
    5% takes 6 seeds. Dividing the lead by its standard error would give the same p-value: over the relabelings the sum
    of squared differences stays, so one grows with the other.

    Args:
        values: (A, S) one value per algorithm and seed; the lowest mean leads.
        rng: generator of random relabelings, used for more than 20 seeds alone.

    Raises:
        MeasureError: fewer than 2 algorithms, no seed, or a missing value.
    """
    table = _checked(values)
    algorithms, seeds = table.shape
    if algorithms < 2:
        raise MeasureError("1 algorithm: there is no lead; train another")
    first, second = (int(at) for at in np.argsort(table.mean(axis=1), kind="stable")[:2])
    differences = table[second] - table[first]
    total = float(differences.sum())
    rounding = _EQUAL * float(np.abs(table).max())
    if seeds <= _MOST_LISTED:
        sums = np.zeros(1)
        for difference in differences:
            sums = np.concatenate([sums + difference, sums - difference])
        as_large, relabelings = int((np.abs(sums) >= total - rounding).sum()), len(sums)
    else:
        signs = 2 * (rng or np.random.default_rng(0)).integers(0, 2, size=(_DRAWN, seeds)) - 1
        as_large, relabelings = 1 + int((np.abs(signs @ differences) >= total - rounding).sum()), _DRAWN + 1
    wins = int((differences > 0).sum())
    return Lead(first, second, max(total, 0.0) / seeds, wins, seeds, as_large, relabelings)


def separated(values: ArrayLike, *, level: float = 0.95) -> Separation:
    """Confidence set of the best algorithm: all that no other one beats in a paired t-test.

    Each algorithm is compared with the A - 1 others at the error probability (1 - level) / max(2, A - 1), one-sided.
    The divisor A - 1 is Bonferroni's. With 2 algorithms it is 2, since either may be the one that leads: then one is
    left out exactly where the usual two-sided interval of their difference excludes 0. Each pair has its own standard
    error; one that all share (Hsu's constrained intervals) fails where one algorithm varies more than another.

    Args:
        values: (A, S) one value per algorithm and seed; lower is better.
        level: probability, at least, that the set holds the algorithm with the lowest true mean, where differences
            are normal. Variances may be unequal and algorithms correlated.

    Returns:
        the set; all algorithms are in it where there is 1 seed, which separates nothing.

    Raises:
        MeasureError: no algorithm, no seed, or a missing value.
    """
    from scipy.stats import t

    table = _checked(values)
    algorithms, seeds = table.shape
    inside = np.ones(algorithms, dtype=bool)
    if algorithms > 1 and seeds > 1:
        differences = table[:, None, :] - table[None, :, :]
        errors = differences.std(axis=2, ddof=1) / np.sqrt(seeds)
        quantile = float(t.ppf(1 - (1 - level) / max(2, algorithms - 1), seeds - 1))
        rounding = _EQUAL * np.abs(table).max()
        inside = (differences.mean(axis=2) <= quantile * errors + rounding).all(axis=1)
    return Separation(tuple(int(at) for at in np.flatnonzero(inside)), algorithms, seeds, level)


def _checked(values: ArrayLike) -> NDArray[np.floating[Any]]:
    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or not table.size:
        raise MeasureError(f"values of shape {table.shape}; give one line per algorithm and one column per seed")
    if not np.isfinite(table).all():
        raise MeasureError("an algorithm lacks a value for one of the seeds; leave that algorithm or that seed out")
    return table

"""Is the algorithm with the lowest mean really better than the next, and do the ranks of several differ at all?

Lower is better; negate accuracies. Seeds are the independent units, and one seed's values belong together.

The data that name the leader also judge it. Testing the leader against the runner-up with a two-sided test allows for
that, however many other algorithms there are: the worst case are two that tie and others that are far off. Ranks are
taken within blocks; a block is whatever ranks all algorithms once: a configuration of a dataset, or a seed.

Sources: Gutmann & Maymin 1987, "Is the selected population the best?"; Phipson & Smyth 2010 (random relabelings); Hsu
1984, "Constrained simultaneous confidence intervals for multiple comparisons with the best"; Friedman 1937; Iman &
Davenport 1980; Nemenyi 1963; as compared in Demsar 2006, "Statistical comparisons of classifiers over multiple data
sets", sections 3.2.2 and 3.2.4.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dgbench.analysis.intervals import Floats, whole
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


def lead(values: ArrayLike) -> Lead:
    """Test the lead by an exact permutation test, in which each seed's two values may change places.

    It is exact where leader and runner-up are exchangeable within a seed, and rejects less often than it says where
    more algorithms tie. With 2 algorithms and 3 seeds, one wins in every seed in 2 of 8 cases, so p is never below 1/4;
    5% takes 6 seeds. Dividing the lead by its standard error would give the same p-value: the sum of squared
    differences is the same in all relabelings, so one grows with the other.

    Args:
        values: (A, S) one value per algorithm and seed; the lowest mean leads.

    Raises:
        MeasureError: fewer than 2 algorithms, no seed, or a missing value.
    """
    table = _table(values)
    algorithms, seeds = table.shape
    if algorithms < 2:
        raise MeasureError("1 algorithm: there is no lead; train another")
    first, second = (int(index) for index in np.argsort(table.mean(axis=1), kind="stable")[:2])
    differences = table[second] - table[first]
    total = float(differences.sum())
    rounding = _EQUAL * float(np.abs(table).max())
    if seeds <= _MOST_LISTED:
        sums = np.zeros(1)
        for difference in differences:
            sums = np.concatenate([sums + difference, sums - difference])
        as_large, relabelings = int((np.abs(sums) >= total - rounding).sum()), len(sums)
    else:
        signs = 2 * np.random.default_rng(0).integers(0, 2, size=(_DRAWN, seeds)) - 1
        as_large, relabelings = 1 + int((np.abs(signs @ differences) >= total - rounding).sum()), _DRAWN + 1
    wins = int((differences > 0).sum())
    return Lead(first, second, max(total, 0.0) / seeds, wins, seeds, as_large, relabelings)


def separated(values: ArrayLike, *, level: float = 0.95) -> Separation:
    """Find the confidence set of the best algorithm: all that no other one beats in a paired t-test.

    Each algorithm is compared with the A - 1 others at the error probability (1 - level) / max(2, A - 1), one-sided.
    The divisor A - 1 is Bonferroni's. With 2 algorithms it is 2, since either may be the one that leads: then one is
    left out exactly where the usual two-sided interval of their difference excludes 0. Each pair has its own standard
    error; one that all share (Hsu's constrained intervals) fails where one algorithm varies more than another.

    Args:
        values: (A, S) one value per algorithm and seed; lower is better.
        level: probability, at least, that the set holds the algorithm with the lowest true mean, where differences
            are normal. Variances may be unequal and algorithms correlated.

    Returns:
        the set; with 1 seed, which separates nothing, all algorithms are in it.

    Raises:
        MeasureError: no algorithm, no seed, or a missing value.
    """
    from scipy.stats import t

    table = _table(values)
    algorithms, seeds = table.shape
    inside = np.ones(algorithms, dtype=bool)
    if algorithms > 1 and seeds > 1:
        differences = table[:, None, :] - table[None, :, :]
        errors = differences.std(axis=2, ddof=1) / np.sqrt(seeds)
        quantile = float(t.isf(error_of_each(algorithms, 1 - level), seeds - 1))
        rounding = _EQUAL * np.abs(table).max()
        inside = (differences.mean(axis=2) <= quantile * errors + rounding).all(axis=1)
    return Separation(tuple(int(index) for index in np.flatnonzero(inside)), algorithms, seeds)


def error_of_each(algorithms: int, alpha: float) -> float:
    """Divide ``alpha`` into the one-sided error probability at which :func:`separated` compares each pair."""
    return alpha / max(2, algorithms - 1)


def welch(means: ArrayLike, deviations: ArrayLike, n: int) -> Floats:
    """Compute two-sided p-values of Welch's t-test of every two of k independent values, 1 where both lack spread.

    A value is a sample's mean, or the average of the means of c independent samples. The variance of a difference is
    then estimated from all 2 c of them, and has the degrees of freedom of Satterthwaite 1946: more than two samples
    alone would give, where none of them dominates.

    Args:
        means: (k,).
        deviations: (k,) or (k, c) sample standard deviations, divisor n-1, of the samples behind each.
        n: number of values behind each sample's mean, 2 or more.

    Returns:
        (k, k).
    """
    from scipy.stats import t

    mean, spread = np.asarray(means, dtype=float), np.asarray(deviations, dtype=float)
    samples = spread.reshape(len(mean), -1)
    variances = samples**2 / n / samples.shape[1] ** 2  # of each sample's share in the average
    total = variances.sum(axis=1)[:, None] + variances.sum(axis=1)[None, :]
    squares = (variances**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = (n - 1) * total**2 / (squares[:, None] + squares[None, :])
        p = 2 * t.sf(np.abs(mean[:, None] - mean[None, :]) / np.sqrt(total), freedom)
    p_values: Floats = np.nan_to_num(p, nan=1.0)
    return p_values


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values of m tests so that any false finding among them has the error probability of one test.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order]))
    return adjusted


def _table(values: ArrayLike) -> Floats:
    table = whole(values)
    if table.ndim != 2 or not table.size:
        raise MeasureError(f"values of shape {table.shape}; give one line per algorithm and one column per seed")
    return table


@dataclass(frozen=True)
class Friedman:
    """Friedman's test over mean ranks (1 is the lowest value)."""

    statistic: float  #: chi-square with k - 1 degrees of freedom, corrected for ties
    p_value: float
    p_value_f: float  #: of Iman & Davenport's F, less conservative
    mean_ranks: tuple[float, ...]
    blocks: int


def friedman(values: ArrayLike) -> Friedman:
    """Run Friedman's test of whether the mean ranks of algorithms differ.

    Args:
        values: (n, k), n blocks (lines) of k algorithms; ranks are taken within a block, ties share theirs.

    Raises:
        MeasureError: fewer than 2 blocks or 3 algorithms, a missing value, or ties throughout.
    """
    from scipy.stats import f, friedmanchisquare, rankdata

    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3:
        shape = " x ".join(map(str, table.shape))
        raise MeasureError(f"Friedman's test needs 2 or more blocks of 3 or more algorithms, got {shape}; train more")
    if not np.isfinite(table).all():
        raise MeasureError("a block lacks an algorithm; leave the block or the algorithm out")
    n, k = table.shape
    if (table == table[:, :1]).all():
        raise MeasureError("all algorithms tie in every block; nothing can be ranked")
    test = friedmanchisquare(*table.T)
    statistic = max(0.0, float(test.statistic))
    rest = n * (k - 1) - statistic
    p_f = 0.0 if rest <= 1e-12 else float(f.sf((n - 1) * statistic / rest, k - 1, (n - 1) * (k - 1)))
    return Friedman(statistic, float(test.pvalue), p_f, tuple(rankdata(table, axis=1).mean(axis=0).tolist()), n)


def sign_test(wins: int, losses: int) -> float:
    """Compute the two-sided p-value of the sign test; cases that tie are left out. 1 where all tie.

    Args:
        wins, losses: number of cases in which one is ahead, and in which the other is.
    """
    total = wins + losses
    tail = sum(math.comb(total, k) for k in range(max(wins, losses), total + 1))
    return min(1.0, float(2 * tail / 2**total))


def critical_difference(algorithms: int, blocks: int, alpha: float = 0.05) -> float:
    """Compute Nemenyi's critical difference of mean ranks of k algorithms in n blocks, q * sqrt(k (k + 1) / (6 n)).

    Raises:
        MeasureError: fewer than 2 algorithms or no block.
    """
    if algorithms < 2 or blocks < 1:
        raise MeasureError(f"{algorithms} algorithms over {blocks} blocks have no critical difference; train more")
    return nemenyi_quantile(algorithms, alpha) * math.sqrt(algorithms * (algorithms + 1) / (6 * blocks))


@functools.cache
def nemenyi_quantile(algorithms: int, alpha: float = 0.05) -> float:
    """Compute the studentized range's upper quantile, infinite degrees of freedom, / sqrt(2) (Demsar 2006, Table 5)."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1 - alpha, algorithms, np.inf) / math.sqrt(2))


def indistinct_groups(mean_ranks: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """List the maximal groups of 2+ algorithms with mean ranks within the critical difference, lowest rank first."""
    order = sorted(mean_ranks, key=lambda name: (mean_ranks[name], name))
    groups: list[tuple[str, ...]] = []
    last = 0
    for start, first in enumerate(order):
        end = start
        while end + 1 < len(order) and mean_ranks[order[end + 1]] - mean_ranks[first] <= difference:
            end += 1
        if end > start and end > last:
            groups.append(tuple(order[start : end + 1]))
            last = end
    return groups

"""Is the algorithm with the lowest mean really better than the next, and do ranks differ at all?

Lower is better; negate accuracies. Seeds are the independent units, and one seed's values belong
together.

The data that name the leader also judge it. Testing the leader against the runner-up with a
two-sided test allows for that, however many other algorithms there are: the worst case are two that
tie and others that are far off. Ranks are taken within blocks; a block is whatever ranks all
algorithms once: a configuration of a dataset, or a seed.

Sources: Gutmann & Maymin 1987, "Is the selected population the best?"; Phipson & Smyth 2010 (random
relabelings); Hsu 1984, "Constrained simultaneous confidence intervals for multiple comparisons with
the best"; Friedman 1937; Iman & Davenport 1980; Nemenyi 1963; as compared in Demsar 2006,
"Statistical comparisons of classifiers over multiple data sets", sections 3.2.2 and 3.2.4.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dgbench.analysis.distributions import t
from dgbench.analysis.intervals import Floats, Interval, whole
from dgbench.errors import MeasureError

_MOST_LISTED = 20  #: seeds of which all relabelings are listed
_DRAWN = 9999  #: relabelings that are drawn for more seeds
_ROUNDING = 1e-9  #: differences of this part of the largest value are rounding


@dataclass(frozen=True)
class Lead:
    """The lowest mean against the second lowest."""

    first: int  #: position of the leader, the earlier one on ties
    second: int  #: position of the runner-up
    size: float  #: mean of the runner-up less that of the leader, >= 0
    wins: int  #: seeds in which the leader is strictly lower
    seeds: int
    as_large: int  #: relabelings with a lead of at least this size, in either direction
    relabelings: int  #: 2 ** seeds if all were listed

    @property
    def p_value(self) -> float:
        """Probability that one of two equal algorithms leads the other by so much."""
        return self.as_large / self.relabelings

    @property
    def least(self) -> float:
        """The smallest p-value that this number of seeds can give: 2 ** (1 - seeds)."""
        return float(2.0 ** (1 - self.seeds))


@dataclass(frozen=True)
class Separation:
    """Which algorithms may be the best: a confidence set of the one with the lowest true mean."""

    candidates: tuple[int, ...]  #: positions of the algorithms that no other one beats
    algorithms: int
    seeds: int  #: of the algorithm that has most


@dataclass(frozen=True)
class Rival:
    """One algorithm against the one that leads, over the seeds that both have."""

    position: int
    seeds: int
    #: how much higher its mean is, with the interval that excludes 0 exactly if the seeds separate
    #: the two; None if they share fewer than 2 seeds
    difference: Interval | None
    separated: bool  #: the leader beats it

    @property
    def p_value(self) -> float | None:
        """Compute the two-sided p-value of this pair alone, uncorrected.

        It is that of the paired t-test whose interval ``difference`` is; None without one.
        """
        if self.difference is None:
            return None
        half = (self.difference.high - self.difference.low) / 2
        if half == 0:
            return 1.0  # both are 0 in every seed
        freedom = self.seeds - 1
        quantile = float(t.ppf((1 + self.difference.level) / 2, freedom))
        return float(2 * t.sf(abs(self.difference.estimate) * quantile / half, freedom))


@dataclass(frozen=True)
class Standing:
    """Who leads, and two things to keep apart: who is behind, and who is not the best."""

    leader: int  #: position of the lowest mean among the algorithms with most seeds
    seeds: int  #: of the leader
    rivals: tuple[Rival, ...]  #: every other algorithm, in the order of the values
    #: of each algorithm that is beaten, by the leader or not: which one beats it, by position;
    #: of several the one with the lowest mean
    beaten_by: Mapping[int, int]

    @property
    def decided(self) -> bool:
        """Whether the seeds separate the leader from every other algorithm."""
        return all(rival.separated for rival in self.rivals)


def lead(values: ArrayLike) -> Lead:
    """Test the lead by an exact permutation test: each seed's two values may change places.

    It is exact if leader and runner-up are exchangeable within a seed, and rejects less often than
    it states if more algorithms tie. With 2 algorithms and 3 seeds, one wins in every seed in
    2 of 8 cases, so p is never below 1/4; 5% takes 6 seeds. Dividing the lead by its standard error
    would give the same p-value: the sum of squared differences is the same in all relabelings, so
    one grows with the other.

    Args:
        values: (A, S) one value per algorithm and seed; the lowest mean leads.

    Raises:
        MeasureError: fewer than 2 algorithms, no seed, or a missing value.
    """
    table = _table(values)
    algorithms, seeds = table.shape
    if algorithms < 2:
        raise MeasureError("1 algorithm: there is no lead; train another")
    first, second = np.argsort(table.mean(axis=1), kind="stable")[:2].tolist()
    differences = table[second] - table[first]
    total = float(differences.sum())
    rounding = _ROUNDING * float(np.abs(table).max())
    if seeds <= _MOST_LISTED:
        sums = np.zeros(1)
        for difference in differences:
            sums = np.concatenate([sums + difference, sums - difference])
        extreme = np.abs(sums) >= total - rounding
        as_large = int(extreme.sum())
        relabelings = len(sums)
    else:
        signs = 2 * np.random.default_rng(0).integers(0, 2, size=(_DRAWN, seeds)) - 1
        extreme = np.abs(signs @ differences) >= total - rounding
        as_large = 1 + int(extreme.sum())
        relabelings = _DRAWN + 1
    wins = int((differences > 0).sum())
    return Lead(first, second, max(total, 0.0) / seeds, wins, seeds, as_large, relabelings)


@dataclass(frozen=True)
class _Comparisons:
    """Paired t-tests of A algorithms with others: arrays of shape (A, B), line less column."""

    seeds: Floats  #: that both have
    difference: Floats  #: mean difference over these seeds, NaN without any
    margin: Floats  #: a difference beyond it is significant; infinite below 2 shared seeds

    @property
    def beaten(self) -> NDArray[np.bool_]:
        """Mark where the column's algorithm is lower than the line's."""
        return self.difference > self.margin


def _compared(table: Floats, others: Floats, level: float) -> _Comparisons:
    """Compare algorithms with others, each two over the seeds that both have.

    Args:
        table: (A, S) values of all algorithms, NaN for those that are missing.
        others: (B, S) some of its lines.
        level: of all comparisons with one algorithm together.
    """
    differences = table[:, None, :] - others[None, :, :]
    present = ~np.isnan(differences)
    seeds = present.sum(axis=2)
    total = np.where(present, differences, 0.0).sum(axis=2)
    mean = np.divide(total, seeds, out=np.full(seeds.shape, np.nan), where=seeds > 0)
    residuals = np.where(present, differences - mean[..., None], 0.0)
    freedom = np.maximum(seeds - 1, 1)
    error = np.sqrt((residuals**2).sum(axis=2) / freedom / np.maximum(seeds, 1))
    # one for each number of seeds: of a thousand algorithms there are a million pairs
    of_freedom = t.isf(error_of_each(len(table), 1 - level), np.arange(1, freedom.max() + 1))
    quantile = of_freedom[freedom - 1]
    rounding = _ROUNDING * float(np.nanmax(np.abs(table)))
    margin = np.where(seeds > 1, quantile * error + rounding, np.inf)
    return _Comparisons(seeds, mean, margin)


def separated(values: ArrayLike, *, level: float = 0.95) -> Separation:
    """Find the confidence set of the best: all that no other one beats in a paired t-test.

    Each algorithm is compared with the A - 1 others at the error probability
    (1 - level) / max(2, A - 1), one-sided. The divisor A - 1 is Bonferroni's. With 2 algorithms it
    is 2, since either may be the one that leads: then one is left out exactly if the usual
    two-sided interval of their difference excludes 0. Each pair has its own standard error; one
    that all share (Hsu's constrained intervals) fails if one algorithm varies more than another.

    An algorithm that is not in the set need not be worse than the one that leads: any other may
    have put it out. :func:`standing` tells whom the leader beats.

    Args:
        values: (A, S) one value per algorithm and seed; lower is better, NaN is missing:
            two algorithms are compared over the seeds that both have, and not at all below two.
        level: probability, at least, that the set holds the algorithm with the lowest true mean,
            if differences are normal. Variances may be unequal and algorithms correlated.

    Returns:
        the set; with 1 seed, which separates nothing, all algorithms are in it.

    Raises:
        MeasureError: no algorithm, no seed, or an algorithm without any value.
    """
    table = _partial_table(values)
    inside = ~_compared(table, table, level).beaten.any(axis=1)
    most = int((~np.isnan(table)).sum(axis=1).max())
    candidates = tuple(np.flatnonzero(inside).tolist())
    return Separation(candidates, len(table), most)


def standing(values: ArrayLike, *, level: float = 0.95, leader: int | None = None) -> Standing:
    """Find the algorithm that leads, whom its seeds separate it from, and which ones are not best.

    The leader is the lowest mean among the algorithms with the seeds that most values have, so that
    an algorithm with one lucky seed does not lead. It is compared with each other one as in
    :func:`separated`. That every rival is beaten ("decided") is wrong in 1 - level of data sets at
    most. That single rivals are beaten while others are not is weaker: the data chose the leader,
    and of A algorithms that all tie it "beats" at least one in 11 to 27 % of data sets.

    Args:
        values, level: as of :func:`separated`.
        leader: position of the algorithm that leads; None finds it.

    Raises:
        MeasureError: no algorithm, no seed, or an algorithm without any value.
    """
    table = _partial_table(values)
    if leader is None:
        leader = _lowest(table)
    compared = _compared(table, table, level)
    two_sided = 1 - 2 * error_of_each(len(table), 1 - level)
    beaten = compared.beaten
    rivals = []
    for position in range(len(table)):
        if position == leader:
            continue
        seeds = int(compared.seeds[position, leader])
        estimate = float(compared.difference[position, leader])
        margin = float(compared.margin[position, leader])
        interval = None
        if seeds > 1:
            interval = Interval(estimate, estimate - margin, estimate + margin, two_sided)
        rivals.append(Rival(position, seeds, interval, bool(beaten[position, leader])))
    best_first = np.argsort(np.nanmean(table, axis=1), kind="stable")
    beaten_by = {}
    for position in np.flatnonzero(beaten.any(axis=1)).tolist():
        beaten_by[position] = next(int(other) for other in best_first if beaten[position, other])
    seeds = int((~np.isnan(table[leader])).sum())
    return Standing(leader, seeds, tuple(rivals), beaten_by)


def decided(values: ArrayLike, *, level: float = 0.95) -> int | None:
    """Find the algorithm that leads, where its seeds separate it from every other one; else None.

    It is :func:`standing` without those who are not the best: of A algorithms it takes A
    comparisons, not A squared.

    Args:
        values, level: as of :func:`separated`.

    Raises:
        MeasureError: no algorithm, no seed, or an algorithm without any value.
    """
    table = _partial_table(values)
    leader = _lowest(table)
    beaten = _compared(table, table[[leader]], level).beaten[:, 0]
    return leader if np.delete(beaten, leader).all() else None


def _lowest(table: Floats) -> int:
    """Find the lowest mean among the algorithms with the seeds that most values have."""
    means = np.nanmean(table, axis=1)
    return int(np.nanargmin(np.where(with_most_seeds(table), means, np.nan)))


def with_most_seeds(table: Floats) -> NDArray[np.bool_]:
    """Mark the algorithms with the same seeds as the first one that has most.

    Args:
        table: (A, S) values of A algorithms, NaN where one lacks a seed.
    """
    present = ~np.isnan(table)
    fullest = present[present.sum(axis=1).argmax()]
    return np.asarray((present >= fullest).all(axis=1))


def error_of_each(algorithms: int, alpha: float) -> float:
    """Divide ``alpha`` into the one-sided error probability at which each pair is compared.

    :func:`separated` does so.
    """
    return alpha / max(2, algorithms - 1)


def welch(means: ArrayLike, deviations: ArrayLike, n: int) -> Floats:
    """Compute two-sided p-values of Welch's t-test of every two of k independent values.

    They are 1 for two values that lack spread.

    A value is a sample's mean, or the average of the means of c independent samples. The variance
    of a difference is then estimated from all 2 c samples, and has the degrees of freedom of
    Satterthwaite 1946: more than two samples alone would give, if none dominates.

    Args:
        means: (k,).
        deviations: (k,) or (k, c) sample standard deviations, divisor n-1, of the samples behind
            each.
        n: number of values behind each sample's mean, 2 or more.

    Returns:
        (k, k).
    """
    difference, error, freedom = _welch_parts(means, deviations, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * t.sf(np.abs(difference) / error, freedom)
    p_values: Floats = np.nan_to_num(p, nan=1.0)
    return p_values


def welch_interval(
    means: ArrayLike, deviations: ArrayLike, n: int, first: int, second: int, level: float
) -> Interval:
    """Compute the interval of a difference that :func:`welch` tests, first value less second.

    Args:
        means, deviations, n: as of :func:`welch`.
        first, second: positions of the values.
        level: it excludes 0 if the p-value is below 1 - level.
    """
    difference, error, freedom = _welch_parts(means, deviations, n)
    estimate = float(difference[first, second])
    half = 0.0
    if error[first, second] > 0:
        half = float(t.ppf((1 + level) / 2, freedom[first, second]) * error[first, second])
    return Interval(estimate, estimate - half, estimate + half, level)


def _welch_parts(means: ArrayLike, deviations: ArrayLike, n: int) -> tuple[Floats, Floats, Floats]:
    """Compute (k, k) differences, their standard errors, and Satterthwaite's degrees of freedom."""
    mean = np.asarray(means, dtype=float)
    samples = np.asarray(deviations, dtype=float).reshape(len(mean), -1)
    variances = samples**2 / n / samples.shape[1] ** 2  # of each sample's share in the average
    total = variances.sum(axis=1)[:, None] + variances.sum(axis=1)[None, :]
    squares = (variances**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = (n - 1) * total**2 / (squares[:, None] + squares[None, :])
    return mean[:, None] - mean[None, :], np.sqrt(total), freedom


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values of m tests so that any false finding has the error probability of one test.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)
    adjusted = np.empty_like(p)
    factors = len(p) - np.arange(len(p))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p[order]))
    return adjusted


def _partial_table(values: ArrayLike) -> Floats:
    """Convert values to (A, S), in which NaN stands for a seed that an algorithm lacks."""
    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or not table.size:
        raise MeasureError(
            f"values of shape {table.shape}; give one line per algorithm and one column per seed"
        )
    if np.isinf(table).any() or np.isnan(table).all(axis=1).any():
        raise MeasureError("an algorithm has no value in any seed; leave it out")
    return table


def _table(values: ArrayLike) -> Floats:
    table = whole(values)
    if table.ndim != 2 or not table.size:
        raise MeasureError(
            f"values of shape {table.shape}; give one line per algorithm and one column per seed"
        )
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
        values: (n, k), n blocks (lines) of k algorithms; ranks are taken within a block, ties share
            theirs.

    Raises:
        MeasureError: fewer than 2 blocks or 3 algorithms, a missing value, or ties throughout.
    """
    from scipy.stats import f, friedmanchisquare, rankdata

    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3:
        shape = " x ".join(map(str, table.shape))
        raise MeasureError(
            f"Friedman's test needs 2 or more blocks of 3 or more algorithms, got {shape}; train "
            "more"
        )
    if not np.isfinite(table).all():
        raise MeasureError("a block lacks an algorithm; leave the block or the algorithm out")
    n, k = table.shape
    if (table == table[:, :1]).all():
        raise MeasureError("all algorithms tie in every block; nothing can be ranked")
    test = friedmanchisquare(*table.T)
    statistic = max(0.0, float(test.statistic))
    rest = n * (k - 1) - statistic
    p_f = 0.0
    if rest > 1e-12:
        p_f = float(f.sf((n - 1) * statistic / rest, k - 1, (n - 1) * (k - 1)))
    mean_ranks = tuple(rankdata(table, axis=1).mean(axis=0).tolist())
    return Friedman(statistic, float(test.pvalue), p_f, mean_ranks, n)


def sign_test(wins: int, losses: int) -> float:
    """Compute the two-sided p-value of the sign test without the cases that tie; 1 if all tie.

    Args:
        wins, losses: number of cases in which one is ahead, and in which the other is.
    """
    total = wins + losses
    tail = sum(math.comb(total, k) for k in range(max(wins, losses), total + 1))
    return min(1.0, float(2 * tail / 2**total))


def critical_difference(algorithms: int, blocks: int, alpha: float = 0.05) -> float:
    """Compute Nemenyi's critical difference of mean ranks, q * sqrt(k (k + 1) / (6 n)).

    It is that of k algorithms in n blocks.

    Raises:
        MeasureError: fewer than 2 algorithms or no block.
    """
    if algorithms < 2 or blocks < 1:
        raise MeasureError(
            f"{algorithms} algorithms over {blocks} blocks have no critical difference; train more"
        )
    root = math.sqrt(algorithms * (algorithms + 1) / (6 * blocks))
    return nemenyi_quantile(algorithms, alpha) * root


@functools.cache
def nemenyi_quantile(algorithms: int, alpha: float = 0.05) -> float:
    """Compute the upper quantile of the studentized range / sqrt(2) (Demsar 2006, Table 5).

    The degrees of freedom are infinite.
    """
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1 - alpha, algorithms, np.inf) / math.sqrt(2))


def indistinct_groups(mean_ranks: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """List the maximal groups of 2 or more algorithms whose mean ranks differ too little.

    The lowest rank comes first; ``difference`` is the critical one.
    """
    order = sorted(mean_ranks, key=lambda name: (mean_ranks[name], name))
    groups: list[tuple[str, ...]] = []
    last = 0
    for start, first in enumerate(order):
        end = start
        for name in order[start + 1 :]:
            if not mean_ranks[name] - mean_ranks[first] <= difference:
                break
            end += 1
        if end > start and end > last:
            groups.append(tuple(order[start : end + 1]))
            last = end
    return groups

"""What another set of seeds, environments or algorithms could have shown: the paired bootstrap.

Every function takes a generator, resamples with replacement and is vectorized: a resample is a line of counts, how
often each seed (environment, algorithm) was drawn, the same counts for every algorithm. That is what pairs them.

A handful of seeds makes the plain percentile interval too narrow (with n values it misses a factor of
sqrt(n / (n - 1)) and takes the normal quantile where Student's belongs). Draws of means are therefore widened about
the estimate by sqrt(n / (n - 1)) * t(n - 1) / z, n being the smallest number of units resampled.

Source: Efron & Tibshirani 1993, chapters 8 and 13; Hesterberg 2015, "What teachers should know about the bootstrap",
section 4.2 (narrowness); Owen 2007, "The pigeonhole bootstrap" (seeds x environments).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dgbench.errors import MeasureError

Floats = NDArray[np.floating[Any]]
Coefficient = Literal["spearman", "kendall"]


@dataclass(frozen=True)
class Interval:
    """An estimate and the range that its resamples span; unit of the estimate."""

    estimate: float
    low: float
    high: float
    level: float  #: nominal coverage in (0, 1)

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Resamples:
    """Means of A algorithms, and the same under B resamples."""

    names: tuple[str, ...]
    estimate: Floats  #: (A,)
    draws: Floats  #: (B, A), widened for the number of units
    units: int  #: smallest number of units resampled (seeds, or environments)
    level: float  #: the coverage that the widening was made for

    def interval(self, name: str) -> Interval:
        """The mean of one algorithm."""
        at = self.names.index(name)
        return _interval(float(self.estimate[at]), self.draws[:, at], self.level)

    def difference(self, first: str, second: str) -> Interval:
        """Mean of the first algorithm less that of the second, over the same resamples."""
        a, b = self.names.index(first), self.names.index(second)
        estimate = float(self.estimate[a] - self.estimate[b])
        return _interval(estimate, self.draws[:, a] - self.draws[:, b], self.level)

    def ranks(self) -> dict[str, Interval]:
        """Rank of every algorithm, 1 is the lowest mean, ties share their mean rank; ends are rounded outwards."""
        from scipy.stats import rankdata

        drawn = rankdata(self.draws, axis=1)
        own = rankdata(self.estimate)
        found = {}
        for at, name in enumerate(self.names):
            each = _interval(float(own[at]), drawn[:, at], self.level, inside=True)
            found[name] = replace(each, low=float(math.floor(each.low)), high=float(math.ceil(each.high)))
        return found

    def chance_of_best(self) -> dict[str, float]:
        """Share of the resamples in which each algorithm has the lowest mean; a tie is shared out."""
        lowest = self.draws == self.draws.min(axis=1, keepdims=True)
        share = (lowest / lowest.sum(axis=1, keepdims=True)).mean(axis=0)
        return {name: float(value) for name, value in zip(self.names, share, strict=True)}


def resample(
    names: Sequence[str],
    values: ArrayLike,
    rng: np.random.Generator,
    *,
    draws: int = 1000,
    level: float = 0.95,
) -> Resamples:
    """Paired resamples of mean errors.

    Args:
        names: the A algorithms.
        values: (A, S) one value per algorithm and seed: seeds are resampled. (A, S, F) one error per algorithm, seed
            and fold, whose mean is the average measure: seeds and folds are resampled, each on its own. With one seed
            the folds alone are. A worst case has no place in the second form: the largest of a resample is never
            larger than the largest of the sample, so the bootstrap over environments misses it.
        rng: generator of the resamples.
        draws: number B of resamples.
        level: nominal coverage of the intervals.

    Raises:
        MeasureError: a value is missing, or nothing can be resampled (one seed and no folds).
    """
    table = np.asarray(values, dtype=float)
    if table.ndim not in (2, 3) or table.shape[0] != len(names) or not table.size:
        raise MeasureError(f"{len(names)} algorithms, but values of shape {table.shape}; give one line per algorithm")
    if not np.isfinite(table).all():
        raise MeasureError("an algorithm lacks a value for one of the seeds; leave that algorithm or that seed out")
    sizes = [size for size in table.shape[1:] if size > 1]
    if not sizes:
        raise MeasureError("1 seed: nothing can be resampled; train more seeds")
    units = min(sizes)
    estimate = table.reshape(len(names), -1).mean(axis=1)
    seeds = _counts(rng, draws, table.shape[1]) / table.shape[1]
    if table.ndim == 2:
        drawn = seeds @ table.T
    else:
        folds = _counts(rng, draws, table.shape[2]) / table.shape[2]
        drawn = np.einsum("bs,asf,bf->ba", seeds, table, folds, optimize=True)
    return Resamples(tuple(names), estimate, estimate + widening(units, level) * (drawn - estimate), units, level)


def widening(units: int, level: float) -> float:
    """Factor by which deviations of a resampled mean of ``units`` values are too small."""
    from scipy.stats import norm, t

    tail = (1 + level) / 2
    return float(math.sqrt(units / (units - 1)) * t.ppf(tail, units - 1) / norm.ppf(tail))


def correlation_interval(
    first: ArrayLike,
    second: ArrayLike,
    rng: np.random.Generator,
    *,
    coefficient: Coefficient = "spearman",
    draws: int = 1000,
    level: float = 0.95,
) -> Interval:
    """Rank correlation of two measures, mean over seeds, with algorithms and seeds resampled.

    Args:
        first, second: (A, S) the two measures of A algorithms for S seeds; the same algorithms are drawn for every
            seed. Resamples in which a measure orders nothing are left out.
        rng, draws, level: as :func:`resample`.

    Raises:
        MeasureError: fewer than 3 algorithms, a missing value, or a measure that orders nothing.
    """
    own, drawn = _correlations([first], second, rng, coefficient, draws)
    return _interval(float(own[0]), drawn[0][np.isfinite(drawn[0])], level, inside=True)


def correlation_difference(
    first: ArrayLike,
    other: ArrayLike,
    ideal: ArrayLike,
    rng: np.random.Generator,
    *,
    coefficient: Coefficient = "spearman",
    draws: int = 1000,
    level: float = 0.95,
) -> Interval:
    """By how much the first measure's rank correlation with the ideal one exceeds the other's, over the same resamples.

    Args and Raises as :func:`correlation_interval`.
    """
    own, drawn = _correlations([first, other], ideal, rng, coefficient, draws)
    differences = drawn[0] - drawn[1]
    return _interval(float(own[0] - own[1]), differences[np.isfinite(differences)], level, inside=True)


def pick_probability(
    measure: ArrayLike,
    ideal: ArrayLike,
    rng: np.random.Generator,
    *,
    draws: int = 1000,
) -> float:
    """Probability that the algorithm with the lowest measure is the one with the lowest ideal error.

    Seeds and algorithms are resampled: it is the chance for another set of candidates and seeds like these, both
    measures averaged over the drawn seeds. Ties are shared out. Where fewer than 2 algorithms were drawn, there is
    nothing to pick, and the resample does not count.

    Args:
        measure, ideal: (A, S) values of A algorithms for S seeds.
        rng, draws: as :func:`resample`.
    """
    a, b = np.asarray(measure, dtype=float), np.asarray(ideal, dtype=float)
    seeds = _counts(rng, draws, a.shape[1]) / a.shape[1]
    drawn = _counts(rng, draws, a.shape[0]) > 0
    picks, truth = (_lowest(np.where(drawn, seeds @ values.T, np.inf)) for values in (a, b))
    agree = (picks & truth).sum(axis=1) / picks.sum(axis=1)
    several = drawn.sum(axis=1) > 1
    return float(agree[several].mean()) if several.any() else math.nan


def _correlations(
    measures: Sequence[ArrayLike], ideal: ArrayLike, rng: np.random.Generator, coefficient: Coefficient, draws: int
) -> tuple[Floats, Floats]:
    """Correlation of each measure with the ideal, mean over seeds: (M,) as it is and (M, draws) resampled."""
    tables = [np.asarray(values, dtype=float) for values in (*measures, ideal)]
    if len({table.shape for table in tables}) > 1 or tables[0].ndim != 2 or tables[0].shape[0] < 3:
        shapes = ", ".join(str(table.shape) for table in tables)
        raise MeasureError(f"an interval needs 3 or more algorithms by seeds, the same in each measure, got {shapes}")
    if not all(np.isfinite(table).all() for table in tables):
        raise MeasureError("an algorithm lacks a value for one of the seeds; leave that algorithm or that seed out")
    algorithms, seeds = tables[0].shape
    correlate = _spearman if coefficient == "spearman" else _kendall
    counts = np.vstack([np.ones((1, algorithms)), _counts(rng, draws, algorithms)])  # the first line is the sample
    weights = np.vstack([np.ones((1, seeds)), _counts(rng, draws, seeds)]) / seeds
    signs = [np.sign(table[:, None, :] - table[None, :, :]) for table in tables]
    found = np.empty((len(measures), draws + 1))
    for at in range(len(measures)):
        each = [correlate(signs[at][..., seed], signs[-1][..., seed], counts) for seed in range(seeds)]
        found[at] = np.where(weights > 0, weights * np.stack(each, axis=1), 0.0).sum(axis=1)
    if not np.isfinite(found[:, 0]).all():
        raise MeasureError("a measure is equal for all algorithms and orders nothing; compare more algorithms")
    return found[:, 0], found[:, 1:]


def _lowest(values: Floats) -> NDArray[np.bool_]:
    return np.asarray(values <= values.min(axis=1, keepdims=True) + 1e-12)


def _counts(rng: np.random.Generator, draws: int, units: int) -> NDArray[np.int64]:
    return rng.multinomial(units, np.full(units, 1 / units), size=draws)


def _spearman(first: Floats, second: Floats, counts: NDArray[Any]) -> Floats:
    """Pearson's correlation of mean ranks, both under the counts: rank_i = (n + 1 + sum_j counts_j sign_ij) / 2."""
    a, b = counts @ first.T, counts @ second.T  # ranks less their mean, twice
    covariance = (counts * a * b).sum(axis=1)
    spread = (counts * a * a).sum(axis=1) * (counts * b * b).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(covariance / np.sqrt(spread))


def _kendall(first: Floats, second: Floats, counts: NDArray[Any]) -> Floats:
    def pairs(signs: Floats) -> Floats:
        return np.asarray(((counts @ signs) * counts).sum(axis=1))

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(pairs(first * second) / np.sqrt(pairs(first * first) * pairs(second * second)))


def _interval(estimate: float, drawn: Floats, level: float, *, inside: bool = False) -> Interval:
    """Percentiles; ``inside`` stretches them to the estimate where the resamples lie to one side of it."""
    if not len(drawn):
        raise MeasureError("no resample has a value; compare more algorithms")
    low, high = (float(value) for value in np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]))
    if inside:
        low, high = min(low, estimate), max(high, estimate)
    return Interval(estimate, low, high, level)

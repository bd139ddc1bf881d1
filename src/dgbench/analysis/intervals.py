"""Intervals: the paired bootstrap, Welch's of two published means, and that of a share.

The bootstrap tells what another set of seeds, environments or algorithms could have shown. Its
functions take a generator, resample with replacement and are vectorized: a resample is a line of
counts, how often each seed (environment, algorithm) was drawn, the same counts for every algorithm.
That is what pairs them.

A handful of seeds makes the plain percentile interval too narrow (with n values it misses a factor
of sqrt(n / (n - 1)) and takes the normal quantile where Student's belongs). Draws of means are
therefore widened about the estimate by sqrt(n / (n - 1)) * t(n - 1) / z, n being the smallest
number of units resampled.

Sources: Efron & Tibshirani 1993, chapters 8 and 13; Hesterberg 2015, "What teachers should know
about the bootstrap", section 4.2 (narrowness); Owen 2007, "The pigeonhole bootstrap" (seeds x
environments); Welch 1947 and Satterthwaite 1946 (degrees of freedom).
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from dgbench.analysis.distributions import normal_quantile, rankdata, t
from dgbench.errors import MeasureError
from dgbench.validation import Checked, Count0, Count1, Number, Refusal

Floats = NDArray[np.floating[Any]]
_BLOCK = 32  #: lines of a thousand resamples that a processor's cache holds


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

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    @functools.cached_property
    def _by_algorithm(self) -> Floats:
        """The draws, each algorithm's in one piece of memory: (A, B)."""
        return np.ascontiguousarray(self.draws.T)

    def difference(self, first: str, second: str) -> Interval:
        """Subtract the second algorithm's mean from the first's, over the same resamples."""
        ((estimate, low, high),) = self.differences(first, [second]).tolist()
        return Interval(estimate, low, high, self.level)

    def differences(self, first: str, others: Sequence[str]) -> Floats:
        """Compute :meth:`difference` of the first algorithm and each of k other ones.

        Returns:
            (k, 3): estimate, lower and upper end.
        """
        place = self._places[first]
        places = [self._places[other] for other in others]
        ends = np.empty((len(places), 3))
        ends[:, 0] = self.estimate[place] - self.estimate[places]
        for start in range(0, len(places), _BLOCK):
            block = slice(start, start + _BLOCK)
            drawn = self._by_algorithm[place] - self._by_algorithm[places[block]]
            drawn.sort(axis=1)
            ends[block, 1] = _quantile_of_sorted(drawn, (1 - self.level) / 2)
            ends[block, 2] = _quantile_of_sorted(drawn, (1 + self.level) / 2)
        return ends

    def ranks(self) -> dict[str, Interval]:
        """Rank every algorithm, 1 is the lowest mean, ties share their mean rank.

        Ends of the intervals are rounded outwards.
        """
        drawn = rankdata(self.draws)
        positions = rankdata(self.estimate)
        intervals = {}
        for index, name in enumerate(self.names):
            rank = interval_of(float(positions[index]), drawn[:, index], self.level, inside=True)
            low = float(math.floor(rank.low))
            high = float(math.ceil(rank.high))
            intervals[name] = replace(rank, low=low, high=high)
        return intervals


def whole(values: ArrayLike) -> Floats:
    """Convert the values of algorithms (lines) and seeds to an array, and refuse missing ones.

    Raises:
        MeasureError: a value is missing.
    """
    table = np.asarray(values, dtype=float)
    if not np.isfinite(table).all():
        raise MeasureError(
            "an algorithm lacks a value for one of the seeds; leave that algorithm or that seed out"
        )
    return table


def resample(
    names: Sequence[str],
    values: ArrayLike,
    rng: np.random.Generator,
    *,
    draws: int = 1000,
    level: float = 0.95,
) -> Resamples:
    """Draw paired resamples of mean errors.

    Args:
        names: the A algorithms.
        values: (A, S) one value per algorithm and seed: seeds are resampled. (A, S, F) one error
            per algorithm, seed and fold, whose mean is the average measure: seeds and folds are
            resampled, each on its own. With one seed the folds alone are. A worst case has no place
            in the second form: the largest of a resample is never larger than the largest of the
            sample, so the bootstrap over environments misses it.
        rng: generator of the resamples.
        draws: number B of resamples.
        level: nominal coverage of the intervals.

    Raises:
        MeasureError: a value is missing, or nothing can be resampled (one seed and no folds).
    """
    table = whole(values)
    if table.ndim not in (2, 3) or table.shape[0] != len(names) or not table.size:
        raise MeasureError(
            f"{len(names)} algorithms, but values of shape {table.shape}; give one line per "
            "algorithm"
        )
    sizes = [size for size in table.shape[1:] if size > 1]
    if not sizes:
        raise MeasureError("1 seed: nothing can be resampled; train more seeds")
    units = min(sizes)
    estimate = table.reshape(len(names), -1).mean(axis=1)
    seeds = counts_of(rng, draws, table.shape[1]) / table.shape[1]
    if table.ndim == 2:
        drawn = seeds @ table.T
    else:
        folds = counts_of(rng, draws, table.shape[2]) / table.shape[2]
        drawn = np.einsum("bs,asf,bf->ba", seeds, table, folds, optimize=True)
    widened = estimate + widening(units, level) * (drawn - estimate)
    return Resamples(tuple(names), estimate, widened, units, level)


def widening(units: int, level: float) -> float:
    """Compute the factor by which a resampled mean of ``units`` values deviates too little."""
    tail = (1 + level) / 2
    return float(math.sqrt(units / (units - 1)) * t.ppf(tail, units - 1) / normal_quantile(tail))


def counts_of(rng: np.random.Generator, draws: int, units: int) -> NDArray[np.int64]:
    """Count how often each unit is drawn, with replacement: (draws, units)."""
    return rng.multinomial(units, np.full(units, 1 / units), size=draws)


def _quantile_of_sorted(values: Floats, share: float) -> Floats:
    """Compute what ``np.quantile(values, share, axis=1)`` does, bit for bit.

    Of many short lines that are sorted already it takes a quarter of the time.

    Args:
        values: (k, B), each line sorted.
        share: in [0, 1].
    """
    place = share * (values.shape[1] - 1)
    below = math.floor(place)
    weight = place - below
    low = values[:, below]
    high = values[:, math.ceil(place)]
    step = high - low
    quantile: Floats = low + step * weight if weight < 0.5 else high - step * (1 - weight)
    return quantile


def interval_of(estimate: float, drawn: Floats, level: float, *, inside: bool = False) -> Interval:
    """Compute the percentile interval of resamples.

    ``inside`` stretches it to include the estimate.
    """
    if not len(drawn):
        raise MeasureError("no resample has a value; compare more algorithms")
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, (1 + level) / 2]).tolist()
    if inside:
        low = min(low, estimate)
        high = max(high, estimate)
    return Interval(estimate, low, high, level)


@dataclass(frozen=True)
class SampleSummary:
    """What a table prints of several values, for instance one per seed."""

    mean: float
    #: standard deviation of the values, divisor n-1; unit of the mean; None if it is not known
    deviation: float | None
    n: int  #: how many values


def compatible(first: SampleSummary, second: SampleSummary, level: float = 0.95) -> Interval:
    """Compute Welch's interval of the first mean less the second.

    The two are compatible if it holds 0.

    It allows for different variances and numbers, and assumes normal values. That the interval
    holds 0 does not show that the means are equal: with few values it is wide, and its width
    belongs to the statement.

    Args:
        first, second: the samples, independent of one another.
        level: nominal coverage.

    Raises:
        MeasureError: a sample has fewer than 2 values or no standard deviation, or one that is
            negative or no number.
    """
    variances = []
    for sample in (first, second):
        deviation = sample.deviation
        usable = math.nan if deviation is None or sample.n < 2 else deviation
        if not (usable >= 0 and math.isfinite(usable + sample.mean)):
            raise MeasureError(
                f"a mean of {sample.n} with standard deviation {deviation} cannot be compared; "
                "2 or more values and their standard deviation are needed"
            )
        variances.append(usable**2 / sample.n)
    difference = first.mean - second.mean
    total = sum(variances)
    if total == 0:
        return Interval(difference, difference, difference, level)
    freedom = total**2 / (variances[0] ** 2 / (first.n - 1) + variances[1] ** 2 / (second.n - 1))
    half = float(t.ppf((1 + level) / 2, freedom)) * math.sqrt(total)
    return Interval(difference, difference - half, difference + half, level)


Z95 = 1.959963984540054  #: of the standard normal distribution: 2.5 % of it lie above


def wilson(count: float, n: int) -> tuple[float, float]:
    """Compute Wilson's 95% score interval of a proportion.

    Source: Wilson, 1927; Brown, Cai and DasGupta, 2001, equation 4.

    Args:
        count: images of a kind, 0 to n; a fraction if it is an expected number.
        n: images, at least 1.

    Returns:
        Lower and upper end, in [0, 1].

    Raises:
        ValueError: ``n`` below 1, or ``count`` outside 0 to n.
    """
    if n < 1 or not 0 <= count <= n:
        raise ValueError(f"{count} of {n} is no proportion")
    p = count / n
    z = Z95
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


class Statistics(Checked):
    """Settings of the bootstrap.

    Args:
        draws: number of resamples.
        level: nominal coverage of the intervals, in (0, 0.9999].
        seed: seed of the resamples.
    """

    key = "report.statistics"

    draws: Count1 = 1000
    level: Annotated[
        Number, Field(gt=0, le=0.9999), Refusal("is not in (0, 0.9999]", "0.95 is usual")
    ] = 0.95
    seed: Count0 = 0

    def rng(self, *names: object) -> np.random.Generator:
        """Create the generator of one table.

        Its numbers depend on the table's name, not on what was made before it.
        """
        name = "/".join(map(str, names))
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    @property
    def percent(self) -> str:
        return f"{100 * self.level:g}%"

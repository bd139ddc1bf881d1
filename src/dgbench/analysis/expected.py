"""Measures of expected errors, estimated from the mean errors of several seeds.

A worst case is a maximum, so the noise of seeds raises it: the mean over seeds of each run's worst
error estimates the worst case *of a training run*, which is larger than the worst *expected* error,
and no number of seeds changes that. The measure of the mean errors estimates the latter. It is too
high as well, but its bias falls with the number of seeds.

Of a handful of seeds neither a bootstrap nor a jackknife makes an interval that holds the truth as
often as it says where environments nearly tie (they cover 50 to 95 % where 95 % are meant,
``benchmarks/statements.py``). What does is the range of the measure over a box of errors that holds
all expected errors at once: t intervals, Bonferroni over the environments. It is wide.

Sources: Hwang et al. 2024, eq. 6 (the measures); Efron 1982, "The jackknife, the bootstrap and
    other resampling plans", chapter 2 (bias).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dgbench.analysis.distributions import t
from dgbench.analysis.intervals import Floats, Interval
from dgbench.analysis.measures import Measure
from dgbench.errors import MeasureError

#: over more environments, a box of few seeds is no narrower than all errors that there can be
MOST_ENVIRONMENTS = 20


@dataclass(frozen=True)
class Expected:
    """One measure of one algorithm's mean errors over seeds."""

    value: float  #: the measure of the mean errors
    of_a_run: float  #: mean over seeds of the measure of each
    #: by how much the value is expected to be too high still (jackknife); None of 1 seed
    bias: float | None
    #: None of 1 seed, over many environments, or where the measure knows no range
    interval: Interval | None


def expected(errors: ArrayLike, measure: Measure, *, level: float = 0.95) -> Expected:
    """Estimate a measure of expected errors.

    Args:
        errors: (S, N) errors of S seeds in N environments, fractions in [0, 1].
        measure: which.
        level: probability, at least, that the interval holds the measure of the expected errors,
            where errors are normal over seeds; environments of a seed may depend on one another.

    Raises:
        MeasureError: no seed, a missing value, or errors that do not suffice for the measure.
    """
    table = np.asarray(errors, dtype=float)
    if table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise MeasureError(f"errors of shape {table.shape}; give one line per seed, all complete")
    seeds, environments = table.shape
    mean = table.mean(axis=0)
    value = measure(mean)
    of_a_run = float(np.mean([measure(of_seed) for of_seed in table]))
    if seeds < 2:
        return Expected(value, of_a_run, None, None)
    # rounding may leave [0, 1]
    without_one = np.clip((seeds * mean - table) / (seeds - 1), 0.0, 1.0)
    of_others = float(np.mean([measure(of_seeds) for of_seeds in without_one]))
    interval = None
    if environments <= MOST_ENVIRONMENTS:
        interval = _over_box(table, measure, value, level)
    return Expected(value, of_a_run, (seeds - 1) * (of_others - value), interval)


def _over_box(table: Floats, measure: Measure, value: float, level: float) -> Interval | None:
    """Find the range of a measure in the box of all expected errors.

    Returns None if it does not say its own.
    """
    seeds, environments = table.shape
    quantile = float(t.isf((1 - level) / (2 * environments), seeds - 1))
    half = quantile * table.std(axis=0, ddof=1) / np.sqrt(seeds)
    low = np.clip(table.mean(axis=0) - half, 0.0, 1.0)
    high = np.clip(table.mean(axis=0) + half, 0.0, 1.0)
    ends = measure.over_box(low, high)
    return None if ends is None else Interval(value, *ends, level)

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
    other
resampling plans", chapter 2 (bias).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dgbench.analysis.distributions import t
from dgbench.analysis.intervals import Floats, Interval
from dgbench.errors import MeasureError

Measure = Callable[[Floats], Floats]  # (..., N) errors -> (...)


def _worst(errors: Floats) -> Floats:
    return np.asarray(errors.max(axis=-1))


def _gap(errors: Floats) -> Floats:
    return np.asarray(errors.max(axis=-1) - errors.min(axis=-1))


def _worst_gap(errors: Floats) -> Floats:
    return np.asarray(_worst(errors) + _gap(errors) / (errors.shape[-1] - 2))


#: measures that are no mean of errors, by name; the ideal is the worst over all environments
RAISED_BY_NOISE: dict[str, Measure] = {
    "worst": _worst,
    "gap": _gap,
    "worst_gap": _worst_gap,
    "ideal": _worst,
}
_FEWEST = {"worst": 1, "gap": 2, "worst_gap": 3, "ideal": 1}  # environments
#: over more environments, a box of few seeds is no narrower than all errors that there can be
MOST_ENVIRONMENTS = 20


@dataclass(frozen=True)
class Expected:
    """One measure of one algorithm's mean errors over seeds."""

    value: float  #: the measure of the mean errors
    of_a_run: float  #: mean over seeds of the measure of each
    #: by how much the value is expected to be too high still (jackknife); None of 1 seed
    bias: float | None
    interval: Interval | None  #: None of 1 seed, or over many environments


def expected(errors: ArrayLike, name: str, *, level: float = 0.95) -> Expected:
    """Estimate a measure of expected errors.

    Args:
        errors: (S, N) errors of S seeds in N environments, fractions in [0, 1].
        name: a key of :data:`RAISED_BY_NOISE`.
        level: probability, at least, that the interval holds the measure of the expected errors,
            where errors are normal over seeds; environments of a seed may depend on one another.

    Raises:
        MeasureError: no such measure, no seed, too few environments, or a missing value.
    """
    if name not in RAISED_BY_NOISE:
        raise MeasureError(f"no measure {name!r}; choose one of {', '.join(RAISED_BY_NOISE)}")
    table = np.asarray(errors, dtype=float)
    if table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise MeasureError(f"errors of shape {table.shape}; give one line per seed, all complete")
    seeds, environments = table.shape
    if environments < _FEWEST[name]:
        raise MeasureError(f"{name} needs {_FEWEST[name]} environments or more, got {environments}")
    measure = RAISED_BY_NOISE[name]
    mean = table.mean(axis=0)
    value = float(measure(mean))
    of_a_run = float(measure(table).mean())
    if seeds < 2:
        return Expected(value, of_a_run, None, None)
    without_one = (seeds * mean - table) / (seeds - 1)
    bias = float((seeds - 1) * (measure(without_one).mean() - value))
    interval = None
    if environments <= MOST_ENVIRONMENTS:
        low, high = _over_box(table, name, level)
        interval = Interval(value, low, high, level)
    return Expected(value, of_a_run, bias, interval)


def _over_box(table: Floats, name: str, level: float) -> tuple[float, float]:
    """Compute the smallest and the largest value that a measure has in the box of all expected
    errors.
    """
    seeds, environments = table.shape
    quantile = float(t.isf((1 - level) / (2 * environments), seeds - 1))
    half = quantile * table.std(axis=0, ddof=1) / np.sqrt(seeds)
    low = np.clip(table.mean(axis=0) - half, 0.0, 1.0)
    high = np.clip(table.mean(axis=0) + half, 0.0, 1.0)
    worst = np.array([low.max(), high.max()])
    gap = np.array([max(0.0, low.max() - high.min()), high.max() - low.min()])
    ends = {
        "worst": worst,
        "ideal": worst,
        "gap": gap,
        "worst_gap": worst + gap / max(environments - 2, 1),
    }[name]
    return float(ends[0]), float(ends[1])

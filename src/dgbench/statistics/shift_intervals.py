"""How far an estimate of shift could be off: from estimates on half of the images, or from trials alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dgbench.errors import MeasureError

LEVEL = 0.95


def half_sampling(value: float, halves: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Interval of an estimate from whole estimates on random halves of either side's images.

    A mean of n/2 of n images, drawn without replacement, differs from that of all n by the variance of one image / n:
    the standard deviation of the halves' estimates (divisor n - 1) *is* the standard error of the full one, without a
    root of 2. It holds the luck of the images as well as that of training; trials share their images and show the
    latter only. Source: Shao & Wu 1989, the jackknife that deletes n/2 of n.

    Args:
        value: the estimate on all images.
        halves: (H,) estimates on halves, H >= 2.
        level: nominal coverage; Student's t with H - 1 degrees of freedom.

    Raises:
        MeasureError: fewer than 2 halves.
    """
    return _about(value, float(_several(halves, "halves").std(ddof=1)), np.size(halves), level)


def over_folds(values: ArrayLike, halves: ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """A dataset's value, the mean of its folds, with its interval by :func:`half_sampling`.

    Halves are drawn once for all folds, so the mean over folds is half-sampled as a whole; folds share environments
    and are no independent values.

    Args:
        values: (F,) estimates of the folds on all images.
        halves: (F, H) estimates on halves; a column is one half.
        level: nominal coverage.

    Returns:
        Value, low and high end.

    Raises:
        MeasureError: fewer than 2 halves.
    """
    value = float(np.asarray(values, dtype=np.float64).mean())
    return value, *half_sampling(value, np.asarray(halves, dtype=np.float64).mean(axis=0), level)


def spread_of_trials(values: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Student's interval of the mean of trials. Trials share their images: it is too narrow for another sample of them.

    Raises:
        MeasureError: fewer than 2 trials.
    """
    trials = _several(values, "trials")
    return _about(float(trials.mean()), float(trials.std(ddof=1)) / math.sqrt(len(trials)), len(trials), level)


def _several(values: ArrayLike, what: str) -> NDArray[np.float64]:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or len(found) < 2:
        raise MeasureError(f"{found.size} {what} have no standard deviation; use {what}=2 or more")
    return found


def _about(value: float, error: float, n: int, level: float) -> tuple[float, float]:
    from scipy.stats import t

    reach = float(t.ppf((1 + level) / 2, n - 1)) * error
    return value - reach, value + reach


# Confidence intervals of an estimated shift: from estimates on halves of the images, else from repeated trials.

HALF_SAMPLING, SPREAD, NO_INTERVAL = "half-sampling", "spread of trials", "none"


@dataclass(frozen=True)
class ShiftInterval:
    """Where the truth may lie, and how that is known."""

    low: float | None
    high: float | None
    kind: str  #: one of the three names above


def shift_interval(value: float, trials: Sequence[float], halves: Sequence[float]) -> ShiftInterval:
    """The 95% interval of a mean of trials: by half-sampling where there are halves, else by the spread of trials.

    Args:
        value: mean of the trials.
        trials: estimates on all images, which differ in subsample, split, initial weights and draws.
        halves: estimates on half of either side's images.
    """
    if len(halves) > 1:
        return ShiftInterval(*half_sampling(value, halves), HALF_SAMPLING)
    if len(trials) > 1:
        low, high = spread_of_trials(trials)
        reach = (high - low) / 2  # about the value: of several pairs not all may have every trial
        return ShiftInterval(value - reach, value + reach, SPREAD)
    return ShiftInterval(None, None, NO_INTERVAL)

"""Confidence intervals of an estimated shift: from estimates on halves of the images, else from repeated trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dgbench.reports.settings.over_seeds import standard_deviation

LEVEL = 0.95
HALF_SAMPLING, SPREAD, NO_INTERVAL = "half-sampling", "spread of trials", "none"


@dataclass(frozen=True)
class ShiftInterval:
    """Where the truth may lie, and how that is known."""

    low: float | None
    high: float | None
    kind: str  #: one of the three names above


def shift_interval(value: float, trials: Sequence[float], halves: Sequence[float]) -> ShiftInterval:
    """The interval of a mean of trials.

    The standard deviation of estimates on halves of the images is the standard error of the estimate on all of them
    (half-sampling). Trials share their images, so their spread leaves out the luck of the images: that interval is too
    narrow, and named so.

    Args:
        value: mean of the trials.
        trials: estimates on all images, which differ in subsample, split, initial weights and draws.
        halves: estimates on half of either side's images.
    """
    if (deviation := standard_deviation(halves)) is not None:
        return _student(value, deviation, len(halves), HALF_SAMPLING)
    if (deviation := standard_deviation(trials)) is not None:
        return _student(value, deviation / math.sqrt(len(trials)), len(trials), SPREAD)
    return ShiftInterval(None, None, NO_INTERVAL)


def _student(value: float, error: float, count: int, kind: str) -> ShiftInterval:
    from scipy.stats import t

    half = float(t.ppf((1 + LEVEL) / 2, count - 1)) * error
    return ShiftInterval(value - half, value + half, kind)

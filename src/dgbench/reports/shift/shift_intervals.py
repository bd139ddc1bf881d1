"""Confidence intervals of an estimated shift: from estimates on halves of the images, else from repeated trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgbench.shifts.intervals import half_sampling, spread_of_trials

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

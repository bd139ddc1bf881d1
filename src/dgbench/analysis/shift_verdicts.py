"""How far an estimate of shift could be off, and which shift dominates.

Intervals come from estimates on halves, trials and nulls. A verdict is given only if they tell an
estimate from that between two halves of one distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dgbench.analysis.distributions import t
from dgbench.errors import MeasureError

LEVEL = 0.95
HALF_SAMPLING = "half-sampling"
SPREAD = "spread of trials"
NO_INTERVAL = "none"
DIVERSITY = "diversity"
CORRELATION = "correlation"
BOTH = "both"
NEITHER = "neither"
UNDECIDED = "undecided"
DOMINANT = (DIVERSITY, CORRELATION)
_SENTENCES = {
    DIVERSITY: "dominated by diversity shift",
    CORRELATION: "dominated by correlation shift",
    BOTH: "both shifts",
    NEITHER: "neither can be told from no shift",
}


@dataclass(frozen=True)
class MeanEstimate:
    """A mean of trials with its interval; without one, ``low`` and ``high`` are None."""

    value: float  #: over pairs the mean of their means
    low: float | None = None
    high: float | None = None
    interval: str = NO_INTERVAL  #: its kind: half-sampling, spread of trials, none
    trials: int = 1
    pairs: int = 1  #: that have the value
    exact: float | None = None  #: the true value, if it is known of all pairs

    @property
    def ends(self) -> list[tuple[float, float]]:
        """Low and high end of the interval, as a list of one pair, no pair without an interval."""
        if self.low is None or self.high is None:
            return []
        return [(self.low, self.high)]

    def __str__(self) -> str:
        intervals = [f" [{low:.2f}, {high:.2f}]" for low, high in self.ends]
        return f"{self.value:.2f}" + "".join(intervals)


def half_sampling(value: float, halves: ArrayLike, level: float = LEVEL) -> tuple[float, float]:
    """Compute the interval of an estimate from whole estimates on random halves of the images.

    A mean of n/2 of n images, drawn without replacement, differs from that of all n by the variance
    of one image / n: the standard deviation of the halves' estimates (divisor n - 1) *is* the
    standard error of the full one, without a root of 2. It covers chance in the images as well as
    in training; trials share their images and show the latter only. Source: Shao & Wu 1989, the
    jackknife that deletes n/2 of n.

    Args:
        value: the estimate on all images.
        halves: (H,) estimates on halves, H >= 2; for a mean over folds, the means over folds: a
            half is drawn once for all folds, and folds share environments, so they are no
            independent values.
        level: nominal coverage; Student's t with H - 1 degrees of freedom.

    Raises:
        MeasureError: fewer than 2 halves.
    """
    return _about(value, halves, "halves", level)


def spread_of_trials(value: float, trials: ArrayLike) -> tuple[float, float]:
    """Compute Student's interval of the mean of trials.

    Trials share images: the interval is too narrow for another sample of images.

    Args:
        value: the mean; if it is over several pairs, not all may have every trial.
        trials: (T,) estimates on all images, which differ in subsample, split, initial weights and
            draws.

    Raises:
        MeasureError: fewer than 2 trials.
    """
    return _about(value, trials, "trials", LEVEL, np.size(trials))


def interval(
    value: float, trials: NDArray[np.float64], halves: NDArray[np.float64]
) -> tuple[float | None, float | None, str]:
    """Compute the 95% interval of a mean and its kind.

    It comes from 2 or more halves, else from 2 or more trials, else there is none.
    """
    if len(halves) > 1:
        return *half_sampling(value, halves), HALF_SAMPLING
    if len(trials) > 1:
        return *spread_of_trials(value, trials), SPREAD
    return None, None, NO_INTERVAL


def verdict_kind(
    div: MeanEstimate, cor: MeanEstimate, null_div: MeanEstimate, null_cor: MeanEstimate
) -> str:
    """Compare the excess of either shift over its null, as intervals.

    A shift is present if the interval of the estimate lies above that of the null, ends excluded;
    two 95% intervals that do not meet are stronger evidence than a test at 5%. It dominates if,
    besides, the whole interval of its excess lies above that of the other shift's.

    Args:
        div, cor: diversity and correlation shift, with intervals.
        null_div, null_cor: the same between two halves of one distribution.
    """
    div_low, div_high = _excess(div, null_div)
    cor_low, cor_high = _excess(cor, null_cor)
    if div_low <= 0 and cor_low <= 0:
        return NEITHER
    if div_low > max(0.0, cor_high):
        return DIVERSITY
    if cor_low > max(0.0, div_high):
        return CORRELATION
    return BOTH if min(div_low, cor_low) > 0 else UNDECIDED


def verdict_words(kind: str, div: MeanEstimate, null_div: MeanEstimate) -> str:
    """Describe a verdict in words; arguments as of :func:`verdict_kind`."""
    if kind in _SENTENCES:
        return _SENTENCES[kind]
    present, undecided = CORRELATION, DIVERSITY
    if is_above(div, null_div):
        present, undecided = DIVERSITY, CORRELATION
    return f"a {present} shift; the {undecided} shift is known too poorly to say which dominates"


def is_above(estimate: MeanEstimate, null: MeanEstimate) -> bool:
    """Return whether the interval of an estimate lies above that of its null; both have one."""
    return _excess(estimate, null)[0] > 0


def _excess(estimate: MeanEstimate, null: MeanEstimate) -> tuple[float, float]:
    ((low, high),) = estimate.ends
    ((null_low, null_high),) = null.ends
    return low - null_high, high - null_low


def _about(
    value: float, estimates: ArrayLike, name: str, level: float, divisor: int = 1
) -> tuple[float, float]:
    values = np.asarray(estimates, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise MeasureError(f"{values.size} {name} have no standard deviation; use {name}=2 or more")
    quantile = float(t.ppf((1 + level) / 2, len(values) - 1))
    reach = quantile * float(values.std(ddof=1)) / math.sqrt(divisor)
    return value - reach, value + reach

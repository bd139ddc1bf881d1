"""Places on a leaderboard, and OoD-Bench's ranking score against a reference algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dgbench.errors import MeasureError

_EQUAL = 1e-9  #: two accuracies this close are equal: what remains of rounding when 63.3 + 0.2 meets 63.5


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """Place of each algorithm, 1 for the highest value; equal values share the better place (1, 2, 2, 4).

    Raises:
        MeasureError: a NaN.
    """
    _check(values)
    return {name: 1 + sum(other > value + _EQUAL for other in values.values()) for name, value in values.items()}


def rank_changes(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, int]:
    """Places won (positive) or lost between two leaderboards, both ranked over the algorithms that they share."""
    shared = before.keys() & after.keys()
    old = ranks({name: before[name] for name in shared})
    new = ranks({name: after[name] for name in shared})
    return {name: old[name] - new[name] for name in after if name in shared}


def ranking_score(value: float, reference: float, error: float) -> int:
    """-1, 0 or +1: the accuracy lies below, within (ends included) or above the reference's error bar.

    Source: Ye et al. 2022 (OoD-Bench), section 3.2.

    Args:
        value: mean accuracy of the algorithm.
        reference: mean accuracy of ERM on the same dataset.
        error: half width of ERM's error bar.

    Raises:
        MeasureError: a NaN, or a negative error bar.
    """
    _check({"value": value, "reference": reference, "error": error})
    if error < 0:
        raise MeasureError(f"an error bar of {error} is none; give one >= 0")
    if value > reference + error + _EQUAL:
        return 1
    return -1 if value < reference - error - _EQUAL else 0


def _check(values: Mapping[str, float]) -> None:
    if odd := [name for name, value in values.items() if math.isnan(value)]:
        raise MeasureError(f"the value of {', '.join(odd)} is NaN; leave it out")

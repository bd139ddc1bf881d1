"""Thresholds of the density estimator under which two halves of one distribution show next to no shift.

Source: the released code of Ye et al. 2022, "OoD-Bench". It bisects both thresholds until the estimate of null pairs,
by the formula with squared differences of roots whatever formula is reported, is small but not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgbench.errors import DataError
from dgbench.shifts.density import from_densities
from dgbench.shifts.density_points import DensitiesAtPoints

LOW, HIGH = 0.005, 0.01  # what null pairs should show on average, of diversity and of correlation shift
LARGEST = (1e-6, 1.0)  # ends of the ranges that are bisected, from 0: eps_div, eps_cor
RISING = (True, False)  # whether the estimate rises with its threshold
ROUNDS = 20


@dataclass(frozen=True)
class Thresholds:
    """Calibrated thresholds, and what null pairs show under them."""

    eps_div: float
    eps_cor: float
    div: float  #: mean diversity shift of the null pairs
    cor: float  #: mean correlation shift of the null pairs

    @property
    def reached(self) -> bool:
        """Whether both means are in the range that was aimed at; if not, the last thresholds were kept."""
        return _inside(self.div) and _inside(self.cor)


def calibrated(nulls: Sequence[DensitiesAtPoints]) -> Thresholds:
    """Bisect the thresholds on the densities of null pairs, at most 20 rounds.

    Args:
        nulls: densities at points of one or more null pairs; they are computed once, only thresholds change.

    Raises:
        DataError: no null pair, or one without any class that has densities.
    """
    if not nulls or not all(len(each.classes) for each in nulls):
        raise DataError("null pairs without densities of classes cannot calibrate; use more images or fixed thresholds")
    ranges = [[0.0, largest] for largest in LARGEST]
    for _ in range(ROUNDS):
        eps_div, eps_cor = (sum(ends) / 2 for ends in ranges)
        shifts = [from_densities(each, eps_div, eps_cor) for each in nulls]
        means = [float(np.mean([each.div_plus for each in shifts])), float(np.mean([each.cor_plus for each in shifts]))]
        if all(map(_inside, means)):
            break
        for ends, middle, mean, rising in zip(ranges, (eps_div, eps_cor), means, RISING, strict=True):
            if not _inside(mean):
                ends[0 if (mean < LOW) is rising else 1] = middle
    return Thresholds(eps_div, eps_cor, *means)


def _inside(mean: float) -> bool:
    return LOW <= mean <= HIGH

"""Do the ranks of several algorithms over several blocks differ more than chance makes them differ?

A block is whatever ranks all algorithms once: a configuration of a dataset, or a seed.

Source: Friedman 1937; Iman & Davenport 1980; Nemenyi 1963; as compared in Demsar 2006, "Statistical comparisons of
classifiers over multiple data sets", sections 3.2.2 and 3.2.4.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dgbench.errors import MeasureError


@dataclass(frozen=True)
class Friedman:
    """Friedman's test over mean ranks (1 is the lowest value)."""

    statistic: float  #: chi-square with k - 1 degrees of freedom, corrected for ties
    p_value: float
    p_value_f: float  #: of Iman & Davenport's F, less conservative
    mean_ranks: tuple[float, ...]
    blocks: int


def friedman(values: ArrayLike) -> Friedman:
    """Friedman's test.

    Args:
        values: (n, k), n blocks (lines) of k algorithms; ranks are taken within a block, ties share theirs.

    Raises:
        MeasureError: fewer than 2 blocks or 3 algorithms, a missing value, or ties throughout.
    """
    from scipy.stats import chi2, f, rankdata

    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3:
        shape = " x ".join(map(str, table.shape))
        raise MeasureError(f"Friedman's test needs 2 or more blocks of 3 or more algorithms, got {shape}; train more")
    if not np.isfinite(table).all():
        raise MeasureError("a block lacks an algorithm; leave the block or the algorithm out")
    n, k = table.shape
    ranks = rankdata(table, axis=1)
    ties = sum(float((counts**3 - counts).sum()) for counts in (np.unique(row, return_counts=True)[1] for row in table))
    correction = 1 - ties / (n * k * (k * k - 1))
    if correction <= 0:
        raise MeasureError("all algorithms tie in every block; nothing can be ranked")
    sums = ranks.sum(axis=0)
    raw = 12 / (n * k * (k + 1)) * float((sums**2).sum()) - 3 * n * (k + 1)
    statistic = max(0.0, raw / correction)
    rest = n * (k - 1) - statistic
    p_f = 0.0 if rest <= 1e-12 else float(f.sf((n - 1) * statistic / rest, k - 1, (n - 1) * (k - 1)))
    return Friedman(statistic, float(chi2.sf(statistic, k - 1)), p_f, tuple(float(s / n) for s in sums), n)


def sign_test(wins: int, losses: int) -> float:
    """Two-sided p-value of the sign test; cases that tie are left out. 1 where all tie.

    Args:
        wins, losses: cases in which one is ahead, and in which the other is.
    """
    total = wins + losses
    tail = sum(math.comb(total, k) for k in range(max(wins, losses), total + 1))
    return min(1.0, float(2 * tail / 2**total))


def critical_difference(algorithms: int, blocks: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of mean ranks, q * sqrt(k (k + 1) / (6 n)).

    Raises:
        MeasureError: fewer than 2 algorithms or no block.
    """
    if algorithms < 2 or blocks < 1:
        raise MeasureError(f"{algorithms} algorithms over {blocks} blocks have no critical difference; train more")
    return nemenyi_quantile(algorithms, alpha) * math.sqrt(algorithms * (algorithms + 1) / (6 * blocks))


@functools.cache
def nemenyi_quantile(algorithms: int, alpha: float = 0.05) -> float:
    """Upper quantile of the studentized range for infinite degrees of freedom, over sqrt(2) (Demsar 2006, Table 5)."""
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(1 - alpha, algorithms, np.inf) / math.sqrt(2))


def indistinct_groups(mean_ranks: Mapping[str, float], difference: float) -> list[tuple[str, ...]]:
    """Largest groups of 2 or more algorithms whose mean ranks lie within the critical difference, lowest rank first."""
    order = sorted(mean_ranks, key=lambda name: (mean_ranks[name], name))
    groups: list[tuple[str, ...]] = []
    last = 0
    for start, first in enumerate(order):
        end = start
        while end + 1 < len(order) and mean_ranks[order[end + 1]] - mean_ranks[first] <= difference:
            end += 1
        if end > start and end > last:
            groups.append(tuple(order[start : end + 1]))
            last = end
    return groups

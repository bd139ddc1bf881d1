"""How well two measures agree on the order of the algorithms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dgbench.errors import MeasureError

ByAlgorithm = Mapping[str, float] | Sequence[float]


def spearman(first: ByAlgorithm, second: ByAlgorithm) -> float:
    """Spearman's rank correlation rho in [-1, 1]; ties get their mean rank (scipy).

    Args:
        first: measure of each algorithm: a mapping from its name, or a sequence in one fixed order.
        second: the other measure of the same algorithms.

    Raises:
        MeasureError: fewer than 2 algorithms, other algorithms in one than in the other, NaN, or one measure equal
            for all algorithms (it orders nothing).
    """
    from scipy.stats import rankdata

    a, b = _paired(first, second)
    return float(np.corrcoef(rankdata(a), rankdata(b))[1, 0])  # spearmanr does this, and a test that costs ten times it


def kendall(first: ByAlgorithm, second: ByAlgorithm) -> float:
    """Kendall's rank correlation tau-b in [-1, 1], which corrects for ties (scipy).

    Args and Raises as :func:`spearman`.
    """
    from scipy.stats import kendalltau

    return float(kendalltau(*_paired(first, second)).statistic)


def _paired(first: ByAlgorithm, second: ByAlgorithm) -> tuple[list[float], list[float]]:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        if first.keys() != second.keys():
            odd = ", ".join(sorted(first.keys() ^ second.keys()))
            raise MeasureError(f"the two measures cover different algorithms ({odd}); give both for the same ones")
        names = sorted(first)
        a, b = [float(first[name]) for name in names], [float(second[name]) for name in names]
    elif isinstance(first, Mapping) or isinstance(second, Mapping):
        raise MeasureError("one measure has algorithm names and the other has none; pass two mappings or two sequences")
    else:
        a, b = [float(value) for value in first], [float(value) for value in second]
    if len(a) != len(b):
        raise MeasureError(f"{len(a)} values against {len(b)}; give both measures for the same algorithms")
    if len(a) < 2:
        raise MeasureError(f"a rank correlation needs 2 or more algorithms, got {len(a)}; train another algorithm")
    if any(math.isnan(value) for value in a + b):
        raise MeasureError("a measure is NaN; leave that algorithm out of both")
    if len(set(a)) == 1 or len(set(b)) == 1:
        raise MeasureError("a measure is equal for all algorithms and orders nothing; compare more algorithms")
    return a, b

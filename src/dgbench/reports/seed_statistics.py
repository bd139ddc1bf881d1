"""Mean and standard deviation over seeds, as table cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dgbench.reports.document import Cell


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, rounded once."""
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation (divisor n-1); None for a single value."""
    if len(values) < 2:
        return None
    center = mean(values)
    return math.sqrt(math.fsum((value - center) ** 2 for value in values) / (len(values) - 1))


def over_seeds(by_seed: Mapping[int, float], seeds: int, reason: str = "") -> Cell:
    """Mean ± standard deviation, marked where fewer than ``seeds`` seeds stand behind it."""
    values = list(by_seed.values())
    if not values:
        return Cell(reason=reason or "no seed has this value", n=0)
    flag = f"(n={len(values)})" if len(values) != seeds else ""
    return Cell(mean(values), standard_deviation(values), len(values), flag=flag)


def with_best(cells: Sequence[Cell], *, highest: bool = False) -> list[Cell]:
    """Mark the best cells of a column: among those with the most seeds, all that tie."""
    from dataclasses import replace

    numbers = [cell for cell in cells if isinstance(cell.value, float)]
    most = max((cell.n or 0 for cell in numbers), default=0)
    candidates = [float(cell.value) for cell in numbers if (cell.n or 0) == most and cell.value is not None]
    if len(candidates) < 2:
        return list(cells)
    best = max(candidates) if highest else min(candidates)
    return [
        replace(cell, best=True)
        if isinstance(cell.value, float) and (cell.n or 0) == most and math.isclose(cell.value, best, abs_tol=1e-12)
        else cell
        for cell in cells
    ]

"""Published values beside ours: cells, the difference with its verdict, columns, and the source.

Every table that holds a paper's numbers beside ours is made of these, whatever its report: of
measures, accuracies, leakage and shift. A paper's value without a counterpart here is left out; one
of ours without a counterpart there is an empty cell.
"""

from __future__ import annotations

from typing import Any

from dgbench.analysis import SampleSummary, compatible
from dgbench.errors import MeasureError
from dgbench.reports.published import Published, Value
from dgbench.reports.tables import Column, Unit, entries, entry, interval_entry

AGREES, DIFFERS = "agrees", "differs"
PERCENT = 100.0  #: what values printed in percent are divided by, since ours are fractions


def published_value(paper: Published, row: str, column: str) -> Value | None:
    """Find a value by row and column; in rows of papers ``_`` stands for a space."""
    return paper.values.get(row.replace(" ", "_"), {}).get(column)


def published_cell(
    name: str, value: Value | None, *, unit: float = 1.0, flag: str = "", reason: str = ""
) -> dict[str, Any]:
    """Write a published value and its error bar in column ``name``; empty where there is none.

    Args:
        name: of the column.
        value: as printed.
        unit: what it is divided by, such as :data:`PERCENT`.
        flag: shown after the value.
        reason: why there is none.
    """
    if value is None:
        return entry(name, reason=reason)
    error = None if value.error is None else value.error / unit
    return entry(name, value.mean / unit, std=error, flag=flag)


def published_column(name: str, title: str, unit: Unit, help: str) -> Column:
    """Define the column of what a paper prints of column ``name``, which stands beside it."""
    return Column(f"{name} published", f"{title}, published", unit, help)


def difference_cells(
    column: str, verdict: str, ours: SampleSummary | str, theirs: Value, seeds: int
) -> dict[str, Any]:
    """Compute ours less theirs with its 95% interval (Welch's), and whether that holds 0.

    Args:
        column: of the difference.
        verdict: column of :data:`AGREES` or :data:`DIFFERS`.
        ours: mean and deviation over our seeds, or the reason why there are none.
        theirs: with the deviation over theirs.
        seeds: how many stand behind theirs.

    Returns:
        The cells of both columns, which are empty with a reason where there is no interval.
    """
    if isinstance(ours, str):
        return entries([column, verdict], ours)
    try:
        difference = compatible(ours, SampleSummary(theirs.mean, theirs.error, seeds))
    except MeasureError as problem:
        return entries([column, verdict], str(problem))
    word = DIFFERS if difference.excludes_zero else AGREES
    return {**interval_entry(column, difference), verdict: word}


def source_note(paper: Published, whose: str = "Published") -> str:
    """Name the source of a paper's columns, and what its file says of them.

    Args:
        paper: the published table.
        whose: what its columns are called.
    """
    return f"{whose}: {paper.source}; {paper.note}."

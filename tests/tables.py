"""Tables of a report by their names, and lines of a table by what they begin with."""

from __future__ import annotations

from dgbench.reports.document import Document
from dgbench.reports.tables import Cell, Table


def table(document: Document, name: str, section: int = 0) -> Table:
    return next(found for found in document.sections[section].tables if found.name == name)


def line(found: Table, *first: str) -> dict[str, Cell]:
    """Column name -> cell, of the line that begins so."""
    (row,) = [
        row for row in found.cells if [cell.value for cell in row[: len(first)]] == list(first)
    ]
    return {column.name: cell for column, cell in zip(found.columns, row, strict=True)}

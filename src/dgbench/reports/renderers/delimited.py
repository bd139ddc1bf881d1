"""Tidy CSV: one file per table name, one line per value, errors as fractions in full precision."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from dgbench.reports.document import Cell, Column, Document, Table


def write_csv(document: Document, folder: Path) -> list[Path]:
    """Columns: section, the table's leading text columns, quantity, value, std, n, reason (why a value is absent)."""
    tables: dict[str, list[tuple[str, Table]]] = defaultdict(list)
    for section in document.sections:
        for table in section.tables:
            tables[table.name].append((section.title, table))
    paths = []
    for name, parts in tables.items():
        paths.append(folder / f"{name}.csv")
        keys = _key_count(parts[0][1].columns)
        header = ["section", *(column.title for column in parts[0][1].columns[:keys])]
        lines = [[*header, "quantity", "value", "std", "n", "reason"]]
        lines += [[title, *line] for title, table in parts for line in _long(table, keys)]
        _write(paths[-1], lines)
    paths.append(folder / f"{document.problems.name}.csv")
    lines = [[column.title for column in document.problems.columns]]
    _write(paths[-1], lines + [[_text(cell.value) for cell in row] for row in document.problems.rows])
    return paths


def _key_count(columns: list[Column]) -> int:
    """How many columns name the line: the leading ones that are text or a seed."""
    count = 1
    while count < len(columns) and columns[count].title in ("seed", "coefficient"):
        count += 1
    return count


def _long(table: Table, keys: int) -> list[list[str]]:
    lines = []
    for row in table.rows:
        key = [_text(cell.value) for cell in row[:keys]]
        for column, cell in zip(table.columns[keys:], row[keys:], strict=True):
            quantity = column.title.removesuffix(" (%)")
            lines.append([*key, quantity, _text(cell.value), _text(cell.std), _count(cell), cell.reason])
    return lines


def _text(value: float | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) > 1:
        return str(int(value))
    return str(value)


def _count(cell: Cell) -> str:
    return "" if cell.n is None else str(cell.n)


def _write(path: Path, lines: list[list[str]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as handle:
        csv.writer(handle, lineterminator="\n").writerows(lines)

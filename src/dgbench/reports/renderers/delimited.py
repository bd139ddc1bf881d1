"""Tidy CSV: one file per table name, one line per value, errors as fractions in full precision."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from dgbench.reports.document import Document
from dgbench.reports.renderers.tidy import Value, text, values


def write_csv(document: Document, folder: Path) -> list[Path]:
    """Columns: section, what names the line, quantity, value, std, n, low, high, reason (why a value is absent)."""
    tables: dict[str, list[Value]] = defaultdict(list)
    for value in values(document):
        tables[value.table].append(value)
    paths = []
    for name, found in tables.items():
        titles = list(dict.fromkeys(title for value in found for title in value.key_titles))
        lines = [["section", *titles, "quantity", "value", "std", "n", "low", "high", "reason"]]
        for value in found:
            named = dict(zip(value.key_titles, value.keys, strict=True))
            keys = [named.get(title, "") for title in titles]
            count = "" if value.n is None else str(value.n)
            numbers = [text(value.value), text(value.std), count, text(value.low), text(value.high)]
            lines.append([value.section, *keys, value.quantity, *numbers, value.reason])
        paths.append(_write(folder / f"{name}.csv", lines))
    lines = [[column.title for column in document.problems.columns]]
    lines += [[text(cell.value) for cell in row] for row in document.problems.rows]
    paths.append(_write(folder / f"{document.problems.name}.csv", lines))
    return paths


def _write(path: Path, lines: list[list[str]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as handle:
        csv.writer(handle, lineterminator="\n").writerows(lines)
    return path

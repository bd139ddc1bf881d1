"""Every value of a document as one tidy line: the content of the CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dgbench.reports.document import Column, Document, Table


@dataclass(frozen=True)
class Value:
    """One cell. Errors are fractions, whatever a table shows."""

    section: str
    table: str
    keys: tuple[str, ...]  #: what names the line, in the order of :attr:`key_titles`
    key_titles: tuple[str, ...]
    quantity: str
    value: float | str | None
    std: float | None
    low: float | None
    high: float | None
    n: int | None
    flag: str
    reason: str


def key_count(columns: list[Column]) -> int:
    """How many columns name the line: the first, and those after it that are keys, a seed or a coefficient."""
    count = 1
    while count < len(columns) and (columns[count].key or columns[count].title in ("seed", "coefficient")):
        count += 1
    return count


def values(document: Document) -> Iterator[Value]:
    """All tables of all sections, without the problems."""
    for section in document.sections:
        for table in section.tables:
            yield from table_values(table, section.title)


def table_values(table: Table, section: str) -> Iterator[Value]:
    """One table, line by line."""
    count = key_count(table.columns)
    titles = tuple(column.title for column in table.columns[:count])
    for row in table.rows:
        keys = tuple(text(cell.value) for cell in row[:count])
        for column, c in zip(table.columns[count:], row[count:], strict=True):
            quantity = column.title.removesuffix(" (%)")
            yield Value(
                section, table.name, keys, titles, quantity, c.value, c.std, c.low, c.high, c.n, c.flag, c.reason
            )


def text(value: float | str | None) -> str:
    """Full precision; a whole number without its point; nothing for nothing."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) > 1:
        return str(int(value))
    return str(value)

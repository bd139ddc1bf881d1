"""What a report is made of, before any renderer: cells, tables, figures, sections.

Values are kept as they are (errors are fractions); only :func:`show` turns them into text, and only there do
percent signs exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["percent", "points", "correlation", "count", "text"]


@dataclass(frozen=True)
class Column:
    """One column: what it is called, in which unit it is shown."""

    title: str
    unit: Unit = "text"
    help: str = ""  #: one sentence, shown where there is room for it

    @property
    def numeric(self) -> bool:
        return self.unit != "text"


@dataclass(frozen=True)
class Cell:
    """One value, or the reason why there is none."""

    value: float | str | None = None
    std: float | None = None  #: sample standard deviation over seeds (divisor n-1), same unit as the value
    n: int | None = None  #: seeds behind the value
    best: bool = False  #: printed bold
    flag: str = ""  #: short text shown after the value, e.g. the number of seeds where it differs
    reason: str = ""  #: why there is no value


@dataclass(frozen=True)
class Table:
    """A table that every renderer takes."""

    name: str  #: stem of its file; tables of one name share columns that can be stacked
    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)  #: plain sentences under the table
    detail: bool = False  #: folded away where the renderer can, left out of the terminal


@dataclass(frozen=True)
class Figure:
    """A picture, drawn once in two formats."""

    name: str
    title: str
    caption: str
    svg: str  #: inline SVG without prolog; its ink is ``currentColor``, so that it follows light and dark pages
    png: bytes


@dataclass(frozen=True)
class Section:
    """Tables and figures of results that may be compared with one another."""

    name: str  #: unique within the document, usable in a file name
    title: str
    facts: list[tuple[str, str]]
    tables: list[Table]
    figures: list[Figure]


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lead: list[str]  #: sentences at the top
    sections: list[Section]
    problems: Table


def show(cell: Cell, unit: Unit, *, digits: int | None = None) -> str:
    """The text of a cell: ``28.1 ± 0.4``, a name, or ``-``."""
    if cell.value is None:
        return "-"
    if isinstance(cell.value, str):
        return cell.value + (f" {cell.flag}" if cell.flag else "")
    factor = 100.0 if unit in ("percent", "points") else 1.0
    places = digits if digits is not None else {"percent": 1, "points": 1, "correlation": 2}.get(unit, 0)
    text = f"{cell.value * factor + 0.0:.{places}f}"
    if cell.std is not None:
        text += f" ± {cell.std * factor:.{places}f}"
    return text + (f" {cell.flag}" if cell.flag else "")

"""What a report is made of, before any renderer: cells, tables, figures, sections.

Values are kept as they are (errors are fractions); only :func:`show` turns them into text, and only there do
percent signs exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

from dgbench.errors import ConfigError

Unit = Literal["percent", "points", "correlation", "probability", "rank", "count", "text"]


@dataclass(frozen=True)
class Column:
    """One column: what it is called, in which unit it is shown."""

    title: str
    unit: Unit = "text"
    help: str = ""  #: one sentence, shown where there is room for it
    key: bool = False  #: names the line together with the first column, as a configuration's scale and ratio do

    @property
    def numeric(self) -> bool:
        return self.unit != "text"


@dataclass(frozen=True)
class Cell:
    """One value, or the reason why there is none."""

    value: float | str | None = None
    std: float | None = None  #: sample standard deviation over seeds (divisor n-1), same unit as the value
    n: int | None = None  #: seeds behind the value
    low: float | None = None  #: ends of its confidence interval, same unit as the value
    high: float | None = None
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
    folded: bool = False  #: folded away where the renderer can, left out of the terminal


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    lead: list[str]  #: sentences at the top
    sections: list[Section]
    problems: Table
    files: Mapping[str, str] = field(default_factory=dict)  #: further files: name -> text
    command: str = ""  #: what makes the whole document again; :func:`remake` narrows it to one table or figure


def remake(document: Document, item: Table | Figure) -> str:
    """The command that makes one table or figure again; empty where the document does not know its own."""
    return f"{document.command} 'only=[{item.name}]'" if document.command else ""


def keep(document: Document, names: Collection[str]) -> Document:
    """The document with the tables and figures of those names alone; the problems always stay.

    Raises:
        ConfigError: a name is neither a table nor a figure of this document.
    """
    tables = {table.name for section in document.sections for table in section.tables}
    figures = {figure.name for section in document.sections for figure in section.figures}
    if unknown := sorted(set(names) - tables - figures):
        close = get_close_matches(unknown[0], sorted(tables | figures), n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"only={unknown} is in no section; {meant}choose from the tables {', '.join(sorted(tables))} "
            f"and {len(figures)} figures, which are named as their files"
        )
    sections = []
    for section in document.sections:
        kept_tables = [table for table in section.tables if table.name in names]
        kept_figures = [figure for figure in section.figures if figure.name in names]
        if kept_tables or kept_figures:
            sections.append(replace(section, tables=kept_tables, figures=kept_figures, folded=False))
    return replace(document, sections=sections)


def is_negative(cell: Cell, unit: Unit) -> bool:
    """True for a correlation below 0: the measure orders the algorithms the wrong way round. Printed underlined."""
    return unit == "correlation" and isinstance(cell.value, float) and cell.value < 0


_PLACES = {"percent": 1, "points": 1, "correlation": 2, "probability": 2, "rank": 1}


def show(cell: Cell, unit: Unit, *, digits: int | None = None) -> str:
    """The text of a cell: ``28.1 ± 0.4``, a name, or ``-``."""
    if cell.value is None:
        return "-"
    if isinstance(cell.value, str):
        return cell.value + (f" {cell.flag}" if cell.flag else "")
    factor = 100.0 if unit in ("percent", "points") else 1.0
    if unit == "rank" and cell.low is not None and cell.value.is_integer():
        digits = 0 if digits is None else digits
    places = digits if digits is not None else _PLACES.get(unit, 0)
    text = f"{cell.value * factor + 0.0:.{places}f}"
    if cell.low is not None and cell.high is not None:
        ends = 0 if unit == "rank" else places
        text += f" [{cell.low * factor + 0.0:.{ends}f}, {cell.high * factor + 0.0:.{ends}f}]"
    if cell.std is not None:
        text += f" ± {cell.std * factor:.{places}f}"
    return text + (f" {cell.flag}" if cell.flag else "")

"""What a report is made of, before any renderer: tables (see :mod:`dgbench.reports.frames`), figures, sections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import pandas as pd

from dgbench.errors import ConfigError
from dgbench.reports.frames import Column, look_of, table
from dgbench.reports.reading.folders import Problem


@dataclass(frozen=True)
class Figure:
    """A picture, drawn once in two formats."""

    name: str
    title: str
    caption: str
    pictures: Callable[
        [], tuple[str, bytes]
    ]  #: gives inline SVG without prolog and PNG, and waits until they are there
    size: str = ""  #: limits of its width, in CSS
    detail: bool = False  #: folded away where the renderer can

    @property
    def svg(self) -> str:
        """Its ink is ``currentColor``, so that it follows light and dark pages."""
        return self.pictures()[0].replace("<svg", f'<svg style="{self.size}"', 1)

    @property
    def png(self) -> bytes:
        """Dark ink on white."""
        return self.pictures()[1]


@dataclass(frozen=True)
class Section:
    """Tables and figures of results that may be compared with one another."""

    name: str  #: unique within the document, usable in a file name
    title: str
    tables: Sequence[pd.DataFrame] = ()
    figures: Sequence[Figure] = ()
    answer: Sequence[str] = ()  #: what the section shows, and what cannot be concluded, in a sentence or two
    facts: Sequence[tuple[str, str]] = ()
    folded: bool = False  #: folded away where the renderer can, left out of the terminal


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    selection: str  #: how the steps and hyperparameters of all numbers were chosen
    sections: Sequence[Section]
    problems: pd.DataFrame
    warnings: Sequence[str] = ()  #: what a reader must know before any number
    lead: Sequence[str] = ()  #: what went into the report
    words: Mapping[str, str] = field(default_factory=dict)  #: term -> one sentence, shown where it first stands
    files: Mapping[str, str] = field(default_factory=dict)  #: further files: name -> text
    command: str = ""  #: what makes the whole document again; :func:`remake` narrows it to one table or figure


def name_of(item: pd.DataFrame | Figure) -> str:
    """The name of a table or figure."""
    return item.name if isinstance(item, Figure) else look_of(item).name


def title_of(item: pd.DataFrame | Figure, document: Document) -> str:
    """Its title, which names the selection: tables are copied out of their report."""
    own = item.title if isinstance(item, Figure) else look_of(item).title
    return f"{own} ({document.selection})" if document.selection else own


def remake(document: Document, item: pd.DataFrame | Figure) -> str:
    """The command that makes one table or figure again; empty where the document does not know its own."""
    return f"{document.command} 'only=[{name_of(item)}]'" if document.command else ""


def keep(document: Document, names: Collection[str]) -> Document:
    """The document with the tables and figures of those names alone; the problems always stay.

    Raises:
        ConfigError: a name is neither a table nor a figure of this document.
    """
    tables = {name_of(each) for section in document.sections for each in section.tables}
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
        kept_tables = [each for each in section.tables if name_of(each) in names]
        kept_figures = [figure for figure in section.figures if figure.name in names]
        if kept_tables or kept_figures:
            sections.append(replace(section, tables=kept_tables, figures=kept_figures, folded=False))
    return replace(document, sections=sections)


def problem_table(problems: Sequence[Problem]) -> pd.DataFrame:
    """Everything that was left out, and why."""
    lines = [{"problem": each.kind, "where": each.where, "reason": each.reason} for each in problems]
    notes = [] if lines else ["Nothing was left out: every run found is finished and in the tables above."]
    columns = [Column("problem", key=True), Column("where"), Column("reason")]
    return table(lines, "problems", "Runs and rows left out, and what is missing", columns, notes)

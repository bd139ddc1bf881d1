"""What a reader sees first: the leading section of a document, the main picture and the main table of a section."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from dgbench.reports.document import Document, Figure, Section
from dgbench.reports.frames import look_of


def sections_in_order(document: Document) -> list[Section]:
    """The leading section (the first that has an answer, else the first), then the others in their order."""
    sections = list(document.sections)
    answered = [at for at, section in enumerate(sections) if section.answer]
    if answered:
        sections.insert(0, sections.pop(answered[0]))
    return sections


def main_figure(section: Section) -> Figure | None:
    """The first figure that is no detail."""
    return next((figure for figure in section.figures if not figure.detail), None)


def main_table(section: Section) -> pd.DataFrame | None:
    """The first table with lines that is no detail; the first detail where a section shows nothing else."""
    filled = sorted((each for each in section.tables if len(each)), key=_is_detail)
    return next((each for each in filled if not _is_detail(each) or not main_figure(section)), None)


def others(section: Section) -> list[pd.DataFrame | Figure]:
    """Everything else in a section: tables, figures, then details of both kinds."""
    table, figure = main_table(section), main_figure(section)
    items: list[pd.DataFrame | Figure] = [*section.tables, *section.figures]
    return sorted((each for each in items if each is not table and each is not figure), key=_is_detail)


def in_order(section: Section) -> Sequence[pd.DataFrame | Figure]:
    """Main picture, main table, then the rest."""
    first = [main_figure(section), main_table(section)]
    return [*(item for item in first if item is not None), *others(section)]


def _is_detail(item: pd.DataFrame | Figure) -> bool:
    return item.detail if isinstance(item, Figure) else look_of(item).detail

"""One self-contained HTML page: the answer on top, no network, light and dark, sortable tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dgbench.reports.document import (
    Document,
    Figure,
    Section,
    in_order,
    main_figure,
    main_table,
    others,
    remake,
    sections_in_order,
    title_of,
)
from dgbench.reports.labels import slug
from dgbench.reports.tables import Cell, Column, Table, cells, is_negative, show

if TYPE_CHECKING:
    from markupsafe import Markup


def write_html(document: Document, folder: Path) -> list[Path]:
    """``report.html`` from ``templates/report.html.j2``, with style, script and figures inlined."""
    path = folder / "report.html"
    path.write_text(render_html(document), encoding="utf-8")
    return [path]


def render_html(document: Document) -> str:
    """The page as text."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("dgbench.reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    sections = sections_in_order(document)
    return templates.get_template("report.html.j2").render(
        document=document,
        leading=sections[0] if sections else None,
        rest=sections[1:],
        explain=Explained(document.words),
        anchor=anchor,
        main_figure=main_figure,
        main_table=main_table,
        others=others,
        in_order=in_order,
        is_figure=lambda item: isinstance(item, Figure),
        address=address,
        size=size,
        cells=cells,
        shown=shown,
        sort_key=sort_key,
        is_negative=is_negative,
        remake=lambda item: remake(document, item),
        title_of=lambda item: title_of(item, document),
    )


def address(section: Section, item: Table | Figure) -> str:
    """The anchor of a table or figure."""
    return f"{section.name}.{item.name}"


def size(item: Table | Figure) -> str:
    """What hides behind a folded line: ``14 x 7``, or that it is a figure."""
    return "figure" if isinstance(item, Figure) else f"{len(item)} \u00d7 {len(item.columns)}"


def shown(cell: Cell, column: Column) -> tuple[str, str]:
    """A number, and what tells how sure it is (interval, deviation, flag) to stand behind it in smaller print."""
    text = show(cell, column.unit)
    if not isinstance(cell.value, float):
        return text, ""
    number, _, beside = text.partition(" ")
    return number, beside


def sort_key(cell: Cell) -> str:
    """What a column is sorted by: the number in full precision, or the text; absent values sort last."""
    return "" if cell.value is None else str(cell.value)


class Explained:
    """Marks the first occurrence of every term, in the order in which it is called.

    Args:
        words: term -> sentence; a term is found as a whole word, in either case, in singular or plural.
    """

    def __init__(self, words: Mapping[str, str]) -> None:
        self._left = {term.lower(): sentence for term, sentence in words.items()}

    def __call__(self, text: str) -> Markup:
        """The text, safe to stand in a page, with a ``<dfn>`` around every term that stands here first."""
        from markupsafe import Markup, escape

        parts = []
        while self._left and (found := self._pattern().search(text)):
            term = found["term"].lower()
            parts += [escape(text[: found.start()]), self._mark(found[0], term, self._left.pop(term))]
            text = text[found.end() :]
        return Markup("").join([*parts, escape(text)])

    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._left, key=len, reverse=True)
        return re.compile(rf"(?<![\w+-])(?P<term>{'|'.join(map(re.escape, longest_first))})s?(?![\w+-])", re.IGNORECASE)

    @staticmethod
    def _mark(shown: str, term: str, sentence: str) -> Markup:
        from markupsafe import Markup

        tag = '<dfn tabindex="0" aria-describedby="{}" data-meaning="{}">{}</dfn>'
        return Markup(tag).format(anchor(term), sentence, shown)


def anchor(term: str) -> str:
    """Where the glossary explains a term."""
    return f"word-{slug(term)}"

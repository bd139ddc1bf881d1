"""One self-contained HTML page: the answer on top, no network, light and dark, sortable tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dgbench.reports.document import (
    Document,
    Figure,
    in_order,
    main_figure,
    main_table,
    others,
    remake,
    sections_in_order,
    title_of,
)
from dgbench.reports.labels import slug
from dgbench.reports.tables import cells, is_negative, show

if TYPE_CHECKING:
    from markupsafe import Markup


def write_html(document: Document, folder: Path) -> list[Path]:
    """Write ``report.html``."""
    path = folder / "report.html"
    path.write_text(render_html(document), encoding="utf-8")
    return [path]


def render_html(document: Document) -> str:
    """Make the page from ``templates/report.html.j2``, with style, script and figures inlined."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("dgbench.reports.render"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    functions = (anchor, cells, in_order, is_negative, main_figure, main_table, others, remake, show, title_of)
    templates.globals |= {function.__name__: function for function in functions}
    sections = sections_in_order(document)
    return templates.get_template("report.html.j2").render(
        document=document,
        leading=sections[0] if sections else None,
        rest=sections[1:],
        explain=Explained(document.words),
        is_figure=lambda item: isinstance(item, Figure),
    )


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

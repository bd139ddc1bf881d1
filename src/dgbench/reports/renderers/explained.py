"""Terms of a report, explained where they first stand on its page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dgbench.reports.settings.labels import slug

if TYPE_CHECKING:
    from markupsafe import Markup


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

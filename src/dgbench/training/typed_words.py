"""Overrides as a user types them, where Hydra's grammar would need quotes: ``dataset.root=~/Müller's pictures``.

Hydra reads a value without quotes only where it holds ASCII letters, digits and ``/ - \\ + . $ % * @ ? |``. A text with
other signs is taken as it stands; what starts as a list, a mapping, a quote or a function, and what holds a comma,
which would sweep over the parts, is left to Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

_EASY = re.compile(r"[\w./+ -]*", re.ASCII)
_STRUCTURE = re.compile(r"""[\[\]{}()'",]""")
_FUNCTION = re.compile(r"\w+\(")


def readable(word: str) -> str:
    """An override that Hydra reads; where none is meant, or none can be made, the word as it stands.

    A list counts as one where its entries hold no brackets and no quotes: ``[a/ä.png,b=c]``.
    """
    key, equals, value = word.partition("=")
    if not equals or _EASY.fullmatch(value) or _reads(word):
        return word
    return next((f"{key}={text}" for text in _texts(value) if _reads(f"{key}={text}")), word)


def quoted(text: str) -> str:
    """Any text as the grammar takes it: in single quotes, with the backslashes that it needs."""
    escaped = re.sub(r"(\\*)'", lambda found: found[1] * 2 + r"\'", text)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * trailing}'"


def _texts(value: str) -> Iterator[str]:
    if value.startswith("[") and value.endswith("]"):
        entries = value[1:-1].split(",")
        if not any(_STRUCTURE.search(entry) for entry in entries):
            yield "[" + ",".join(entry if _reads(f"k={entry}") else quoted(entry) for entry in entries) + "]"
    elif value[0] not in "[{'\"$" and "," not in value and not _FUNCTION.match(value):
        yield quoted(value)


def _reads(word: str) -> bool:
    try:
        _parser().parse_override(word)
    except HydraException:
        return False
    return True


@cache
def _parser() -> OverridesParser:
    return OverridesParser.create()

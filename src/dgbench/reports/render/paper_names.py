"""Names of algorithms as papers print them, ``GroupDRO`` for ``group_dro``, in cells, sentences and
figures.

Only what a document calls an algorithm is renamed: ``fact`` and ``transfer`` are words as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def paper_names(labels: Iterable[str]) -> dict[str, str]:
    """Map labels of algorithms to their names in papers; those that papers call so are left out."""
    from dgbench.plan.names import name_in_papers

    names = {label: name_in_papers(label) for label in labels}
    return {label: name for label, name in names.items() if name != label}


def with_paper_names(text: str, names: Mapping[str, str]) -> str:
    """Replace labels in a text, as whole words, by their names in papers.

    Args:
        text: a cell, a sentence, or a label of a figure.
        names: of :func:`paper_names`.
    """
    if not names:
        return text
    longest_first = sorted(names, key=len, reverse=True)
    labels = "|".join(map(re.escape, longest_first))
    return re.sub(rf"(?<![\w+-])(?:{labels})(?![\w+-])", lambda match: names[match[0]], text)

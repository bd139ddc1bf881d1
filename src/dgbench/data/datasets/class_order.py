"""The order of names: as text, or as numbers if all are integers.

It decides which output of a network is which class.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"\d+")


def in_order(names: Iterable[str]) -> list[str]:
    """Sort different names: as numbers if all are integers, else as text."""
    different = sorted(set(names))
    if all(_INTEGER.fullmatch(name) for name in different):
        return sorted(different, key=int)  # stable: 01 and 1 stay in the order of text
    return different


def is_unclear(classes: Iterable[str]) -> bool:
    """Return whether names that differ only in their numbers sort differently as text.

    ``2`` and ``10`` do, ``class2`` and ``class10`` too, ``02`` and ``10`` do not.
    """
    different = sorted(set(classes))
    if in_order(different) != different:
        return True
    numbers_of: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
    for name in different:
        pattern = _NUMBER.sub("#", name)
        numbers_of[pattern].append(tuple(map(int, _NUMBER.findall(name))))
    return any(numbers != sorted(numbers) for numbers in numbers_of.values())

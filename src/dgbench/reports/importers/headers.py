"""Names of the columns of foreign tables: one row of them, or two (``snow`` over 1, 2, ..., 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from dgbench.errors import RecordError
from dgbench.reports.importers.cells import NOTHING, parsed
from dgbench.reports.reading.folders import ASSUMED, Problem
from dgbench.validation import some_of

Rows = Sequence[Sequence[str]]
_MOST_ROWS = 2  # of names


def check_names(names: Sequence[Any], source: str) -> None:
    """Refuse two columns of one name.

    Raises:
        RecordError: there are some.
    """
    counts = Counter(name for name in names if str(name).strip())
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise RecordError(f"{source} has two columns {twice}; rename one")


def read_header(rows: Rows, source: str, problems: list[Problem]) -> tuple[list[str], int]:
    """Read the names of the columns.

    Two rows are names if those of the first repeat, as merged cells do, and the second tells them
    apart. A third row that holds nothing but its first cell names that column, as pandas writes it.

    Args:
        rows: the first three of the table, as text; fewer if there are no more.
        source: what the table is called in messages.
        problems: receives the names, if two rows were joined.

    Returns:
        the names, and of how many rows they are.

    Raises:
        RecordError: two columns have one name.
    """
    first = [name.strip() for name in rows[0]]
    if len(rows) < _MOST_ROWS + 1:
        check_names(first, source)
        return first, 1
    second = [name.strip() for name in rows[1]]
    if _is_title(first, second):
        problems.append(Problem("lines left out", source, f"line 1, a title: {first[0]}"))
        check_names(second, source)
        return second, 2
    joined = _joined(first, second)
    if not joined:
        check_names(first, source)
        return first, 1
    height = _MOST_ROWS
    third = [cell.strip() for cell in rows[_MOST_ROWS]]
    if third[0] and not any(third[1:]) and not joined[0]:
        joined[0] = third[0]
        height += 1
    check_names(joined, source)
    problems.append(Problem(ASSUMED, source, f"two rows of names: {some_of(joined, 6)}"))
    return joined, height


def _is_title(first: Sequence[str], second: Sequence[str]) -> bool:
    """Tell whether the first row is one cell, merged across the names of all columns."""
    is_alone = bool(first[0]) and not any(first[1:])
    return is_alone and 1 < len(first) == len(second) and all(second)


def _joined(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Join two rows of names; an empty list if the second is none."""
    if len(first) != len(second):
        return []
    upper = _filled(first, second)
    counts = Counter(upper)
    below = [name for above, name in zip(upper, second, strict=True) if counts[above] > 1 and above]
    if not below or not all(below):
        return []
    single = [place for place, name in enumerate(upper) if counts[name] == 1 or not name]
    values_below = any(first[place] and second[place] for place in single)
    if values_below or (any(second[place] for place in single) and _has_numbers(below)):
        return []  # a line of values
    joined = [f"{above} {name}".strip() for above, name in zip(upper, second, strict=True)]
    return [] if len(set(joined)) < len(joined) else joined


def _filled(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Give the cells that a merged one covers its name."""
    filled: list[str] = []
    for name, below in zip(first, second, strict=True):
        covered = not name and below and filled and filled[-1]
        filled.append(filled[-1] if covered else name)
    return filled


def _has_numbers(cells: Sequence[str]) -> bool:
    return bool(pd.notna(parsed(pd.Series(list(cells), dtype=object))).any())


def nameless(names: Sequence[str]) -> list[str]:
    """Name the columns without a name as pandas does: ``Unnamed: 0``."""
    return [name or f"Unnamed: {place}" for place, name in enumerate(names)]


def is_footnote(cells: Sequence[str]) -> bool:
    """Return whether a line says one thing, which is no number, in one cell or in a merged one."""
    words = {cell.strip() for cell in cells if cell.strip().lower() not in NOTHING}
    return len(words) == 1 and not _has_numbers(list(words))

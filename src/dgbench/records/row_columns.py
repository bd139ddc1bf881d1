"""Row files with good lines of one identity, as nearly every file is, column by column.

What a line says is checked as by :func:`~dgbench.records.rows.parse_rows`, but each check is
made once for a column, not once for a line. Any other file is left to ``parse_rows``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from dgbench.errors import RecordError
from dgbench.records.checks import LARGEST_COUNT, printable_text
from dgbench.records.rows import (
    CUT,
    LATER_COUNTS,
    LATER_KEYS,
    ROW_CHECKS,
    SUBSETS,
    RowParser,
    decode_together,
)

Column = Sequence[Any]

_NEEDED = ROW_CHECKS.keys() - set(LATER_KEYS)
_NUMBERS = frozenset((int, float))
_NONE = type(None)


@dataclass(frozen=True)
class RowColumns:
    """The rows of one run."""

    identity: dict[str, Any]  #: the keys of a run's identity that its lines have
    columns: Mapping[str, Column]  #: a value per line for each other key, in the order of the lines


def parse_columns(content: bytes) -> RowColumns | None:
    """Parse a row file whose lines are good rows of one identity, written alike.

    Returns:
        None for any other file, and for one of a single line.
    """
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if len(lines) < 2:
        return None
    parser = RowParser()
    try:
        identity, _ = parser.parse(lines[0])
    except RecordError:
        return None
    if parser.known(lines[0]) is None:
        return None
    columns = _columns(lines)
    if columns is None or not _is_sound(columns):
        return None
    return RowColumns(identity, columns)


def _columns(lines: Sequence[bytes]) -> dict[str, Column] | None:
    """Decode what lines with the beginning of the first one say after it.

    Returns None if they differ in their beginnings or keys.
    """
    cut = lines[0].rfind(CUT)
    beginning = lines[0][: cut + len(CUT)]
    tails = [b"{" + line[cut + 1 :] for line in lines if line.startswith(beginning)]
    if len(tails) < len(lines) or any(CUT in tail for tail in tails):
        return None
    values = decode_together(tails)
    if set(map(type, values)) != {dict}:
        return None
    names = [name for name in ROW_CHECKS if name in values[0]]
    if not _NEEDED.issubset(names) or set(map(len, values)) != {len(names)}:
        return None
    try:
        rows = list(map(itemgetter(*names), values))
    except KeyError:
        return None
    columns: dict[str, Column] = dict(zip(names, zip(*rows, strict=True), strict=True))
    for name in set(LATER_KEYS) - columns.keys():
        columns[name] = [None] * len(lines)
    return columns


def _is_sound(columns: Mapping[str, Column]) -> bool:
    """Return whether all values are good."""
    return (
        _are_names(columns)
        and _are_counts(columns["step"], 0)
        and _are_counts(columns["seen"], 1)
        and _are_counts(_given(columns["together"]), 1)
        and _are_errors(columns)
    )


def _are_names(columns: Mapping[str, Column]) -> bool:
    """Return whether environments, subsets and truths are such."""
    if _types(columns["env"]) | _types(columns["subset"]) != {str}:
        return False
    if _types(columns["env_held_out"]) != {bool} or not set(columns["subset"]).issubset(SUBSETS):
        return False
    return not any(printable_text(env) for env in set(columns["env"]))


def _are_counts(values: Column, low: int) -> bool:
    """Return whether all values are whole numbers from ``low`` to the largest count."""
    if not values:
        return True
    return _types(values) == {int} and low <= min(values) and max(values) <= LARGEST_COUNT


def _are_errors(columns: Mapping[str, Column]) -> bool:
    """Return whether cross entropies are numbers, and no count of wrong images is above that of
    images seen.
    """
    if _types(columns["loss"]) != {float} or any(map(math.isnan, columns["loss"])):
        return False
    seen = columns["seen"]
    if not _types(columns["wrong"]) <= _NUMBERS:
        return False
    return all(_are_at_most(columns[name], seen) for name in ("wrong", *LATER_COUNTS))


def _are_at_most(counts: Column, most: Column) -> bool:
    """Return whether all counts that are given are numbers from 0 to those of ``most``."""
    if _types(counts) == {_NONE}:
        return True
    if not _types(counts) <= _NUMBERS | {_NONE}:
        return False
    pairs = zip(counts, most, strict=True)
    return all(count is None or 0 <= count <= limit for count, limit in pairs)


def _given(values: Column) -> list[Any]:
    return [value for value in values if value is not None]


def _types(values: Column) -> set[type]:
    return set(map(type, values))

"""Compute the numbers of an entry again from its rows, and compare them with its tables."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.errors import DgbenchError
from dgbench.reports.reading.folders import ROWS
from tools.archive.entries import (
    CHECKSUMMED,
    LEADERBOARD,
    MEASURES,
    Entry,
    digest_of,
    read_entry,
    sha256_of,
)
from tools.archive.tables import (
    board_of,
    measures_in,
    missing_of,
    read_table,
    setting_keys,
    studies_of,
    table_text,
)

LAST_DECIMAL = 1.5e-6  #: of a table, which another machine may round differently


def number_faults(entry: Entry) -> tuple[str, ...]:
    """List where an entry differs from what its rows give; computed once for the same bytes."""
    return _number_faults(entry.folder, digest_of(entry))


@cache
def _number_faults(folder: Path, digest: str) -> tuple[str, ...]:
    del digest  # it is part of the key of the cache
    return tuple(_computed_faults(read_entry(folder)))


def is_verified(entry: Entry) -> bool:
    """Compute the numbers of an entry again; return whether they agree."""
    try:
        return not number_faults(entry)
    except (DgbenchError, OSError):
        return False


def _computed_faults(entry: Entry) -> Iterator[str]:
    """Check checksums, committed tables and the list of missing results against the rows."""
    for name in CHECKSUMMED:
        if entry.sha256.get(name) != sha256_of(entry.folder / name):
            yield f"{name} has not the sha256 that entry.yaml says"
    studies = studies_of(entry.folder / ROWS, entry.selection)
    for name, computed in ((MEASURES, studies), (LEADERBOARD, board_of(studies))):
        for fault in table_faults(read_table(entry.folder / name), computed):
            yield f"{name}: {fault}"
    listed = _studies_named(entry.missing)
    lacking = _studies_named(missing_of(studies))
    for study in listed - lacking:
        yield f"missing lists what is there: {study}"
    for study in lacking - listed:
        yield f"missing lacks {study}"


def _studies_named(lines: Iterable[str]) -> Counter[str]:
    """Count the studies, such as ``erm seed 0``, in lines that say what is missing and why."""
    return Counter(re.sub(r"^.*?: (.+ seed \d+): .*", r"\1", line) for line in lines)


def table_faults(committed: pd.DataFrame, computed: pd.DataFrame) -> Iterator[str]:
    """List where a committed table differs from the one that the rows give, cell by cell.

    A column that only one of the two has does not count: an entry may be older than a measure, or
    have one that this installation lacks.
    """
    theirs = pd.read_csv(io.StringIO(table_text(computed)), dtype=str, keep_default_na=False)
    keys = [*setting_keys(theirs), "algorithm"]
    if "seed" in theirs:
        keys.append("seed")
    shared = [name for name in keys if name in committed]
    measures = [name for name in measures_in(theirs) if name in committed]
    if not {"selection", "algorithm", "code"} <= {*shared} or not measures:
        yield f"it has the columns {', '.join(committed)}: neither keys nor measures of its rows"
        return
    if len(committed) != len(theirs):
        yield f"it has {len(committed)} lines, its rows give {len(theirs)}"
        return
    selections = {*committed["selection"]} ^ {*theirs["selection"]}
    if selections:  # the numbers are of other steps
        yield f"of selection {' and '.join(sorted(selections))}: pack again, or correct entry.yaml"
        return
    lines = {_key(line, shared): line for line in theirs.to_dict("records")}
    for number, line in enumerate(committed.to_dict("records"), start=2):
        expected = lines.pop(_key(line, shared), None)
        if expected is None:
            yield f"line {number}: its rows give no {line['algorithm']} of this setting and seed"
            continue
        for name in measures:
            if not _close(line[name], expected[name]):
                cells = f"{line[name] or 'empty'}, its rows give {expected[name] or 'nothing'}"
                yield f"line {number}: {name} is {cells}"


def _key(line: Mapping[Any, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(line[name] for name in columns)


def _close(cell: str, other: str) -> bool:
    """Return whether two cells are equal, or numbers that differ by rounding alone."""
    if cell == other:
        return True
    try:
        return abs(float(cell) - float(other)) <= LAST_DECIMAL
    except ValueError:
        return False

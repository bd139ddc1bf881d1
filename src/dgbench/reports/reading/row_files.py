"""One run and its rows as arrays: what a row file holds, and what in it cannot be used (faults)."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.records.files import open_regular
from dgbench.records.rows import DEFAULTS, IDENTITY_CHECKS, ParsedRow, parse_rows, shown
from dgbench.reports.reading.folders import Problem, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    RowArray = NDArray[np.void]  # of ROW_TYPE, in the order in which the rows were written

#: a row: ``env`` and ``subset`` are numbers of a :class:`Names`
ROW_TYPE = np.dtype(
    [
        ("step", "int32"),
        ("env", "int32"),
        ("subset", "int32"),
        ("env_held_out", "bool"),
        ("seen", "int32"),
        ("wrong", "float64"),
        ("loss", "float32"),
    ]
)
ROW_COLUMNS: tuple[str, ...] = ROW_TYPE.names or ()


class Names:
    """Numbers for the names of environments and subsets: one number for each name in all runs that are read."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}

    def number(self, name: str) -> int:
        """The number of a name, a new one where it has none."""
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def listed(self) -> list[str]:
        """All names, in the order of their numbers."""
        return list(self._numbers)


def row_array(rows: Iterable[tuple[Any, ...]]) -> RowArray:
    """Rows from tuples in the order of :data:`ROW_COLUMNS`, with numbers for names."""
    with np.errstate(over="ignore"):  # a loss beyond single precision is infinite in a table
        return np.array(list(rows), dtype=ROW_TYPE)


@dataclass(frozen=True)
class Run:
    """One run as found on disk."""

    folder: str
    identity: dict[str, Any]  #: the fields of :class:`~dgbench.records.rows.RunIdentity`
    status: str  #: ``DONE``, ``RUNNING``, ``FAILED``, ``INTERRUPTED`` or ``UNKNOWN``
    reason: str  #: what the status line says after the status
    last_step: int
    row_count: int
    together: int | None = None  #: how many runs trained together at its last step; None where the rows do not say

    @property
    def unusable(self) -> str:
        """Why its errors must not be used; empty when they may."""
        if self.status == "DONE":
            return ""
        if self.status == "FAILED":
            return f"failed: {self.reason or 'no reason given'}"
        return f"unfinished (status {self.status}), last row at step {self.last_step}"


IDENTITY_KEYS = tuple(IDENTITY_CHECKS)
CODE_SEPARATOR = " and "  #: between the code versions of a run that has several

SETTLED = 2.0  # seconds; a younger file may change again without a new time, where times are coarse

_step, _counts = itemgetter("step"), itemgetter("env_held_out", "seen", "wrong", "loss")

Stamp = tuple[int, int, int]  # what changes with a file: its size, and its times in ns


@dataclass(frozen=True)
class FoundRun:
    """One run of a row file."""

    identity: dict[str, Any]
    last_step: int
    together: int | None  #: runs that trained together at the last step
    rows: RowArray


@dataclass(frozen=True)
class RowFile:
    """What a row file says."""

    runs: list[FoundRun]
    faults: list[Fault]
    stamp: Stamp | None = None  #: None where the file may change again without a new stamp


def stamp_of(about: os.stat_result) -> Stamp:
    """What tells two versions of a file apart."""
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns


def read_row_file(file: Path, names: Names) -> RowFile:
    """Read and check a row file.

    Args:
        file: to read.
        names: receives the names that its rows hold.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open_regular(file) as handle:
        about, now = os.fstat(handle.fileno()), time.time()
        content = handle.read()
    parsed, dropped = parse_rows(content)
    faults = [Fault("dropped line", line, reason) for line, reason in dropped]
    by_run: dict[str, list[ParsedRow]] = defaultdict(list)
    for row in parsed:
        by_run[row.identity["run"]].append(row)
    runs, more = [], []
    for rows in by_run.values():
        identity, contradicting = _agreed(rows)
        faults += _contradictions(rows, identity, contradicting)
        run, repeated = _run([row for row in rows if id(row.identity) not in contradicting], identity, names)
        runs.append(run)
        if repeated:
            more.append(Fault("repeated rows", 0, f"{repeated} rows were written twice; the later ones are used"))
        if CODE_SEPARATOR in run.identity["code"]:
            more.append(Fault("several code versions", None, f"rows of {run.identity['code']}"))
    settled = now - about.st_mtime > SETTLED
    return RowFile(runs, [*bounded(faults), *more], stamp_of(about) if settled else None)


def _agreed(rows: Sequence[ParsedRow]) -> tuple[dict[str, Any], dict[int, str]]:
    """What the rows of a run say of it; where they contradict one another, what most of them say.

    Returns:
        the keys of an identity that some row has, and the ids of the identities that are not used, each with a key
        that differs. The code version may: a run is resumed with other code.
    """
    said = {id(row.identity): row.identity for row in rows}
    agreed: dict[str, Any] = {}
    contradicting = {}
    for which, _ in Counter(id(row.identity) for row in rows).most_common():
        who = said[which]
        differ = [key for key in who if key in agreed and key != "code" and who[key] != agreed[key]]
        if differ:
            contradicting[which] = differ[0]
        else:
            agreed = {**who, **agreed}
    return agreed, contradicting


def _contradictions(
    rows: Sequence[ParsedRow], identity: Mapping[str, Any], contradicting: Mapping[int, str]
) -> list[Fault]:
    own: dict[int, list[ParsedRow]] = defaultdict(list)
    for row in rows:
        own[id(row.identity)].append(row)
    faults = []
    for which, key in contradicting.items():
        first, count = own[which][0], len(own[which])
        theirs, said = shown(first.identity[key]), shown(identity[key])
        why = f"run {identity['run']}: {key} is {theirs} in {count} rows, which are left out, and {said} in the others"
        faults.append(Fault("contradicting rows", first.line, why))
    return faults


def _run(rows: Sequence[ParsedRow], identity: Mapping[str, Any], names: Names) -> tuple[FoundRun, int]:
    """One run, and how many of its rows were written again."""
    kept: dict[tuple[Any, ...], ParsedRow] = {}
    for row in rows:
        own = row.own
        kept[own["step"], own["env"], own["subset"]] = row  # the later line wins: a resumed run writes a step again
    values = [row.own for row in kept.values()]
    latest = max(values, key=_step)
    codes = sorted({row.identity["code"] for row in kept.values()})
    whole = {**DEFAULTS, **identity, "code": CODE_SEPARATOR.join(codes)}
    number = names.number
    array = row_array((own["step"], number(own["env"]), number(own["subset"]), *_counts(own)) for own in values)
    found = FoundRun({key: whole[key] for key in IDENTITY_KEYS}, latest["step"], latest["together"], array)
    return found, len(rows) - len(kept)


MOST_NAMED = 20  # lines of one file


@dataclass(frozen=True)
class Fault:
    """Something in a file of rows that is not used, or that a reader must know."""

    kind: str
    line: int | None  #: 1-based; 0 is the whole file, None the folder around it
    reason: str

    def in_file(self, file: Path) -> Problem:
        """As a problem of that file."""
        where = printable(file.parent if self.line is None else file)
        return Problem(self.kind, f"{where}:{self.line}" if self.line else where, self.reason)


def bounded(faults: Sequence[Fault]) -> list[Fault]:
    """Few of many faults one by one, in the order of their lines: a file of garbage must not bury everything else."""
    ordered = sorted(faults, key=lambda fault: fault.line or 0)
    more = ordered[MOST_NAMED:]
    if not more:
        return ordered
    summary = f"{len(more)} more lines, from {more[0].line} to {more[-1].line}, e.g. {more[0].kind}: {more[0].reason}"
    return [*ordered[:MOST_NAMED], Fault("more of these", 0, summary)]

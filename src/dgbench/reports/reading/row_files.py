"""Runs and their rows as arrays, from the row files of run folders.

What cannot be used is a fault of its file. :mod:`~dgbench.reports.reading.archived_runs` reads the
same from archives, :mod:`~dgbench.reports.reading.row_cache` from a cache.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.records.checks import shown
from dgbench.records.evaluations import RowKey
from dgbench.records.files import open_regular
from dgbench.records.row_columns import parse_columns
from dgbench.records.rows import LATER_COUNTS, ROW_CHECKS, ParsedRow, parse_rows
from dgbench.records.run_identity import DEFAULTS, IDENTITY_CHECKS, Role, keys
from dgbench.records.status import DONE, STOPPED, lacking_of
from dgbench.reports.reading.folders import Problem, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    RowArray = NDArray[np.void]  # of ROW_TYPE, in the order in which the rows were written
    Record = tuple["Run", RowArray]

ROUNDING_POINTS = 1e-9  # percentage points that sums in another order may change
FEWEST_ROWS = 4096  # in one array of several runs
MOST_ROWS = 2**20
SETTLED_SECONDS = 2.0  # a younger file may change again without a new time, where times are coarse
MOST_NAMED_LINES = 20  # faulty lines of one file
IDENTITY_KEYS = tuple(IDENTITY_CHECKS)
SEEDED = keys(Role.DATA_SEED)
BY_SEED = "by seed"  #: value of a key of :data:`SEEDED` where every seed has its own
_PLACE = ("step", "env", "subset")
_place = itemgetter(*_PLACE)
CODE_SEPARATOR = " and "  #: between the code versions of a run that has several

Stamp = tuple[int, int, int]  # what changes with a file: its size, and its times in ns

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
        *((name, "float64") for name in LATER_COUNTS),  # NaN where rows do not say it
    ]
)
ROW_COLUMNS: tuple[str, ...] = ROW_TYPE.names or ()
#: columns that archives lack which are older than the key
LATER_COLUMNS = LATER_COUNTS


class Names(dict[str, int]):
    """Numbers of the names of environments and subsets in all runs that are read, in their order.

    It also keeps one copy of each value that identities of runs have in common, and the rows of
    many runs in one array: tens of thousands of small ones would leave memory full of holes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, Any] = {}
        self._rows = np.empty(0, dtype=ROW_TYPE)
        self._used = 0  # of the rows

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, len(self))

    def shared(self, value: Any) -> Any:
        """Return an equal value that was read before, where there is one: many runs share most of
        their identity.
        """
        if type(value) in (list, dict):
            return self._values.setdefault(json.dumps(value), value)
        return self._values.setdefault(f"text {value}", value) if type(value) is str else value

    def together(self, rows: RowArray) -> RowArray:
        """Copy the rows of a run beside those of others."""
        if self._used + len(rows) > len(self._rows):
            size = min(max(FEWEST_ROWS, 2 * len(self._rows)), MOST_ROWS)
            self._rows = np.empty(max(len(rows), size), dtype=ROW_TYPE)
            self._used = 0
        place = self._rows[self._used : self._used + len(rows)]
        place[:] = rows
        self._used += len(rows)
        return place


def row_array(columns: Mapping[str, Sequence[Any]], names: Names) -> RowArray:
    """Make rows from a list for each of :data:`ROW_COLUMNS`; ``names`` numbers the names."""
    rows = np.empty(len(columns["step"]), dtype=ROW_TYPE)
    with np.errstate(over="ignore"):  # a loss beyond single precision is infinite in a table
        for name in ROW_COLUMNS:
            values = columns[name]
            if name in ("env", "subset"):
                values = [names[text] for text in values]
            rows[name] = np.array(values, dtype=ROW_TYPE[name])
    return rows


@dataclass(frozen=True)
class Run:
    """One run as found on disk."""

    folder: str
    identity: dict[str, Any]  #: the fields of :class:`~dgbench.records.run_identity.RunIdentity`
    status: str  #: ``DONE``, ``RUNNING``, ``FAILED``, ``INTERRUPTED``, ``STOPPED`` or ``UNKNOWN``
    reason: str  #: what the status line says after the status
    last_step: int
    row_count: int
    #: how many runs trained together at its last step, or None if the rows do not say
    together: int | None = None
    lacking: str = ""  #: what is missing among the rows of a finished run, in words
    #: other folders with the same rows, as ``dgbench evaluate`` writes them
    copies: tuple[str, ...] = ()

    def file(self, name: str) -> Path | None:
        """Find a file beside its rows, in its own folder first."""
        files = (Path(folder, name) for folder in (self.folder, *self.copies))
        return next((file for file in files if file.exists()), None)

    @property
    def unusable(self) -> str:
        """Why its errors must not be used; empty when they may."""
        if self.status == DONE:
            return f"{DONE}, but {self.lacking}" if self.lacking else ""
        if self.status == "FAILED":
            return f"failed: {self.reason or 'no reason given'}"
        if self.status == STOPPED:
            return f"stopped by its search {self.reason}"
        return f"unfinished (status {self.status}), last row at step {self.last_step}"


@dataclass(frozen=True)
class Fault:
    """Something in a file of rows that is not used, or that a reader must know."""

    kind: str
    line: int | None  #: 1-based; 0 is the whole file, None the folder around it
    reason: str

    def in_file(self, file: Path) -> Problem:
        """Convert it to a problem of that file, or of the folder around it."""
        if self.line is None:
            place = printable(file.parent)
        elif self.line == 0:
            place = printable(file)
        else:
            place = f"{printable(file)}:{self.line}"
        return Problem(self.kind, place, self.reason)


def bounded(faults: Sequence[Fault]) -> list[Fault]:
    """Sort faults by line and sum up all after the first :data:`MOST_NAMED_LINES`: garbage must not
    bury everything else.
    """
    ordered = sorted(faults, key=lambda fault: fault.line or 0)
    tail = ordered[MOST_NAMED_LINES:]
    if not tail:
        return ordered
    summary = (
        f"{len(tail)} more lines, from {tail[0].line} to {tail[-1].line}, e.g. {tail[0].kind}: "
        f"{tail[0].reason}"
    )
    return [*ordered[:MOST_NAMED_LINES], Fault("more of these", 0, summary)]


@dataclass(frozen=True)
class RowFile:
    """What a row file says."""

    runs: list[Record]  #: without folder and status
    faults: list[Fault]
    stamp: Stamp | None = None  #: None if the file may change again without a new stamp
    crc32: int = 0  #: of its content


def read_row_file(file: Path, names: Names) -> RowFile:
    """Read and check a row file.

    Args:
        file: to read.
        names: receives the names that its rows hold.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open_regular(file) as handle:
        about = os.fstat(handle.fileno())
        opened = time.time()
        content = handle.read()
    runs, faults = _usual_run(content, names, file.parent)
    if not runs:
        runs, faults = _all_runs(content, names, file.parent)
    settled = opened - about.st_mtime > SETTLED_SECONDS
    stamp = stamp_of(about) if settled else None
    return RowFile(runs, faults, stamp, zlib.crc32(content))


def _usual_run(content: bytes, names: Names, folder: Path) -> tuple[list[Record], list[Fault]]:
    """Read a file with good rows of one run, none twice; no run for any other file."""
    rows = parse_columns(content)
    if rows is None:
        return [], []
    places = set(zip(*(rows.columns[name] for name in _PLACE), strict=True))
    if len(places) < len(rows.columns["step"]):
        return [], []
    record = _record(rows.columns, places, rows.identity, names, folder)
    return [record], _several_codes(record[0])


def _several_codes(run: Run) -> list[Fault]:
    """Report that a run was trained by several code versions, if it was."""
    code = run.identity["code"]
    if CODE_SEPARATOR not in code:
        return []
    return [Fault("several code versions", None, f"rows of {code}")]


def _all_runs(content: bytes, names: Names, folder: Path) -> tuple[list[Record], list[Fault]]:
    """Read whatever is a good row, and what is wrong with the others."""
    parsed, dropped = parse_rows(content)
    faults = [Fault("dropped line", line, reason) for line, reason in dropped]
    by_run: dict[str, list[ParsedRow]] = defaultdict(list)
    for row in parsed:
        by_run[row.identity["run"]].append(row)
    runs = []
    faults_of_runs = []
    for rows in by_run.values():
        identity, agreeing, contradicting = _agreed(rows)
        faults += contradicting
        record = _record_of_rows(agreeing, identity, names, folder)
        runs.append(record)
        repeated = len(agreeing) - record[0].row_count
        if repeated:
            differ = _disagreement(agreeing)
            reason = f"{repeated} rows were written twice{differ}; the later ones are used"
            kind = "disagreeing rows" if differ else "repeated rows"
            faults_of_runs.append(Fault(kind, 0, reason))
        faults_of_runs += _several_codes(record[0])
    return runs, [*bounded(faults), *faults_of_runs]


def stamp_of(about: os.stat_result) -> Stamp:
    """Return what changes whenever a file does."""
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _agreed(rows: Sequence[ParsedRow]) -> tuple[dict[str, Any], list[ParsedRow], list[Fault]]:
    """Find the identity on which the rows of a run agree.

    If they contradict one another it is the one that most rows have.

    Returns:
        the agreed identity, with each key that an agreeing row has; the agreeing rows; and a fault
        for each other identity. The code version may differ: a run is resumed with other code.
    """
    by_identity: dict[int, list[ParsedRow]] = defaultdict(list)
    for row in rows:
        by_identity[id(row.identity)].append(row)
    agreed: dict[str, Any] = {}
    agreeing: set[int] = set()
    faults = []
    for identity_id, members in sorted(by_identity.items(), key=lambda item: -len(item[1])):
        identity = members[0].identity
        differ = [
            key
            for key in identity
            if key in agreed and key != "code" and identity[key] != agreed[key]
        ]
        if not differ:
            agreed = {**identity, **agreed}
            agreeing.add(identity_id)
            continue
        left_out = (
            f"{differ[0]} is {shown(identity[differ[0]])} in {len(members)} rows, which are left "
            "out"
        )
        reason = f"run {agreed['run']}: {left_out}, and {shown(agreed[differ[0]])} in the others"
        faults.append(Fault("contradicting rows", members[0].line, reason))
    return agreed, [row for row in rows if id(row.identity) in agreeing], faults


def _disagreement(rows: Sequence[ParsedRow]) -> str:
    """Count in how many places repeated rows of a run have different errors, and by how much.

    Returns an empty text if there are none.
    """
    errors: dict[RowKey, list[float]] = defaultdict(list)
    for row in rows:
        errors[_place(row.own)].append(100 * row.own["wrong"] / row.own["seen"])
    latest = {key: values[-1] for key, values in errors.items()}
    farthest = {
        key: max(values, key=lambda error: abs(error - values[-1]))
        for key, values in errors.items()
    }
    differ, largest = differing(latest, farthest)
    return f", {len(differ)} with different errors, {largest}" if differ else ""


def differing(
    ours: Mapping[RowKey, float], theirs: Mapping[RowKey, float]
) -> tuple[list[RowKey], str]:
    """List where both have an error (in percent) and they differ by more than rounding, and say
    where they do most.
    """
    points = {key: abs(ours[key] - theirs[key]) for key in sorted(ours.keys() & theirs.keys())}
    differ = [key for key, value in points.items() if value > ROUNDING_POINTS]
    step, env, subset = worst = max(differ, key=points.__getitem__, default=(0, "", ""))
    return (
        differ,
        f"most by {points.get(worst, 0):.3g} percentage points ({env} {subset} at step {step})",
    )


def _record_of_rows(
    rows: Sequence[ParsedRow], identity: dict[str, Any], names: Names, folder: Path
) -> Record:
    # the later line wins: a resumed run writes a step again
    kept = {_place(row.own): row for row in rows}
    codes = sorted({row.identity["code"] for row in kept.values()})
    identity = {**identity, "code": CODE_SEPARATOR.join(codes)}
    columns = {}
    for name in ROW_CHECKS:
        columns[name] = [row.own[name] for row in kept.values()]
    return _record(columns, kept.keys(), identity, names, folder)


def _record(
    columns: Mapping[str, Sequence[Any]],
    places: Collection[RowKey],
    identity: dict[str, Any],
    names: Names,
    folder: Path,
) -> Record:
    """Make a run and its rows.

    Args:
        columns: a value per row for each key of a row besides its identity.
        places: step, environment and subset of the rows, each once.
        identity: on which the rows agree.
        names: receives the names that the rows hold.
        folder: of the run.
    """
    last_step = max(columns["step"])
    together = columns["together"][columns["step"].index(last_step)]
    array = row_array(columns, names)
    identity = {**DEFAULTS, **identity}
    identity = {key: names.shared(identity[key]) for key in IDENTITY_KEYS}
    lacking = lacking_of(folder, identity, places)
    run = Run("", identity, "", "", last_step, len(array), together, lacking)
    return run, names.together(array)

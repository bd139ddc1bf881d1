"""Runs and their rows as arrays: from row files, archives of runs
(:mod:`dgbench.reports.archive.entries`) and a cache.

What cannot be used is a fault of its file.

The cache is hidden in the folder that was searched, so that a report of many runs is fast the
second time. It says nothing that the row files do not say: it may be deleted, one of another
version is passed over, and a folder that cannot be written gets none. It keeps the checksum of
every row file that it was made from, of which some are looked at before it is believed; one that is
damaged, or was made from other rows, is named and made again.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import logging
import lzma
import os
import sys
import time
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

import dgbench.records.evaluations
import dgbench.records.rows
import dgbench.records.status
from dgbench.errors import RecordError
from dgbench.records.evaluations import Evaluations, RowKey
from dgbench.records.files import Checksum, check_expansion, open_regular, read_arrays, write_whole
from dgbench.records.rows import (
    DEFAULTS,
    IDENTITY_CHECKS,
    LARGEST_COUNT,
    ROW_CHECKS,
    ROW_FILE,
    ParsedRow,
    Role,
    first_fault,
    keys,
    misfit,
    optional,
    parse_rows,
    shown,
    whole,
)
from dgbench.records.status import DONE, STOPPED, WORDS, lacking_of
from dgbench.reports.reading.folders import UNKNOWN, Problem, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    RowArray = NDArray[np.void]  # of ROW_TYPE, in the order in which the rows were written
    Record = tuple["Run", RowArray]

log = logging.getLogger("dgbench")
CACHE_FILE = ".dgbench-rows.npz"
# bytes of row files read anew from which on the cache is written: less is read in a moment
WORTH = 8_000_000
TOLERANCE = 1e-9  # percentage points that sums in another order may change
FEWEST_TOGETHER, MOST_TOGETHER = 4096, 2**20  # rows in one array
CHECKED = 16  # row files of a cache that are looked at before it is believed
SETTLED = 2.0  # seconds; a younger file may change again without a new time, where times are coarse
MOST_NAMED = 20  # faulty lines of one file
MOST_BAD = 1000  # lines of an archive that are no runs; then the rest is no better
LONGEST_LINE = 16_000_000  # bytes of one packed run, some 250,000 rows
IDENTITY_KEYS = tuple(IDENTITY_CHECKS)
SEEDED = keys(Role.DATA_SEED)
BY_SEED = "by seed"  #: value of a key of :data:`SEEDED` where every seed has its own
_place = itemgetter("step", "env", "subset")
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
        ("majority_wrong", "float64"),  # NaN where rows do not say it
    ]
)
ROW_COLUMNS: tuple[str, ...] = ROW_TYPE.names or ()
#: of them, those that archives lack which are older than the key
LATER_COLUMNS = ("majority_wrong",)


class Names(dict[str, int]):
    """Numbers of the names of environments and subsets in all runs that are read, in their order.

    It also keeps one copy of each value that identities of runs have in common, and the rows of
    many runs in one array: tens of thousands of small ones would leave memory full of holes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, Any] = {}
        self._rows = np.empty(0, dtype=ROW_TYPE)
        self._used = 0  # of them

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
            size = min(max(FEWEST_TOGETHER, 2 * len(self._rows)), MOST_TOGETHER)
            self._rows = np.empty(max(len(rows), size), dtype=ROW_TYPE)
            self._used = 0
        place = self._rows[self._used : self._used + len(rows)]
        place[:] = rows
        self._used += len(rows)
        return place


def row_array(rows: Iterable[tuple[Any, ...]]) -> RowArray:
    """Make rows from tuples in the order of :data:`ROW_COLUMNS`, with numbers for names."""
    with np.errstate(over="ignore"):  # a loss beyond single precision is infinite in a table
        return np.array(list(rows), dtype=ROW_TYPE)


@dataclass(frozen=True)
class Run:
    """One run as found on disk."""

    folder: str
    identity: dict[str, Any]  #: the fields of :class:`~dgbench.records.rows.RunIdentity`
    status: str  #: ``DONE``, ``RUNNING``, ``FAILED``, ``INTERRUPTED``, ``STOPPED`` or ``UNKNOWN``
    reason: str  #: what the status line says after the status
    last_step: int
    row_count: int
    #: how many runs trained together at its last step; None where the rows do not say
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
        path = printable(file.parent if self.line is None else file)
        return Problem(self.kind, f"{path}:{self.line}" if self.line else path, self.reason)


def bounded(faults: Sequence[Fault]) -> list[Fault]:
    """Sort faults by line and sum up all after the first :data:`MOST_NAMED`: garbage must not bury
    everything else.
    """
    ordered = sorted(faults, key=lambda fault: fault.line or 0)
    tail = ordered[MOST_NAMED:]
    if not tail:
        return ordered
    summary = (
        f"{len(tail)} more lines, from {tail[0].line} to {tail[-1].line}, e.g. {tail[0].kind}: "
        f"{tail[0].reason}"
    )
    return [*ordered[:MOST_NAMED], Fault("more of these", 0, summary)]


@dataclass(frozen=True)
class RowFile:
    """What a row file says."""

    runs: list[Record]  #: without folder and status
    faults: list[Fault]
    stamp: Stamp | None = None  #: None where the file may change again without a new stamp
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
    parsed, dropped = parse_rows(content)
    faults = [Fault("dropped line", line, reason) for line, reason in dropped]
    by_run: dict[str, list[ParsedRow]] = defaultdict(list)
    for row in parsed:
        by_run[row.identity["run"]].append(row)
    runs = []
    run_faults = []
    for rows in by_run.values():
        identity, agreeing, contradicting = _agreed(rows)
        faults += contradicting
        run, array = _record(agreeing, identity, names, file.parent)
        runs.append((run, array))
        repeated = len(agreeing) - run.row_count
        if repeated:
            differ = _disagreement(agreeing)
            reason = f"{repeated} rows were written twice{differ}; the later ones are used"
            run_faults.append(Fault("disagreeing rows" if differ else "repeated rows", 0, reason))
        if CODE_SEPARATOR in run.identity["code"]:
            run_faults.append(
                Fault("several code versions", None, f"rows of {run.identity['code']}")
            )
    settled = opened - about.st_mtime > SETTLED
    stamp = _stamp(about) if settled else None
    return RowFile(runs, [*bounded(faults), *run_faults], stamp, zlib.crc32(content))


def _stamp(about: os.stat_result) -> Stamp:
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _agreed(rows: Sequence[ParsedRow]) -> tuple[dict[str, Any], list[ParsedRow], list[Fault]]:
    """Find the identity on which the rows of a run agree; where they contradict one another, the
    one most rows have.

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
    """Say in how many places repeated rows of a run have different errors, and by how much; empty
    where in none.
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
    differ = [key for key, value in points.items() if value > TOLERANCE]
    step, env, subset = worst = max(differ, key=points.__getitem__, default=(0, "", ""))
    return (
        differ,
        f"most by {points.get(worst, 0):.3g} percentage points ({env} {subset} at step {step})",
    )


def _record(
    rows: Sequence[ParsedRow], identity: dict[str, Any], names: Names, folder: Path
) -> Record:
    # the later line wins: a resumed run writes a step again
    kept = {_place(row.own): row for row in rows}
    values = [row.own for row in kept.values()]
    latest = max(values, key=itemgetter("step"))
    codes = sorted({row.identity["code"] for row in kept.values()})
    identity = {**DEFAULTS, **identity, "code": CODE_SEPARATOR.join(codes)}
    counts = itemgetter("env_held_out", "seen", "wrong", "loss", "majority_wrong")
    array = row_array(
        (fields["step"], names[fields["env"]], names[fields["subset"]], *counts(fields))
        for fields in values
    )
    identity = {key: names.shared(identity[key]) for key in IDENTITY_KEYS}
    lacking = lacking_of(folder, identity, kept)
    run = Run("", identity, "", "", latest["step"], len(array), latest["together"], lacking)
    return run, names.together(array)


_COUNT = whole(0, LARGEST_COUNT)
#: of the keys of a run besides its identity
_RUN_CHECKS = {
    "folder": lambda value: "" if type(value) is str else f"is {shown(value)}, not text",
    "status": lambda value: "" if value in (*WORDS, UNKNOWN) else f"is {shown(value)}, no status",
    "reason": lambda value: "" if type(value) is str else f"is {shown(value)}, not text",
    "last_step": _COUNT,
    "row_count": _COUNT,
    "together": optional(_COUNT),
}


def archive_lines(file: Path) -> Iterator[bytes]:
    """Read the lines of an archive of runs, one in memory at a time.

    Raises:
        RecordError: it expands to more than runs can be.
        OSError, EOFError, lzma.LZMAError: it cannot be read, is cut short, or not packed.
    """
    size = 0
    with open_regular(file) as handle, lzma.open(handle) as lines:
        while line := lines.readline(LONGEST_LINE + 1):
            size += len(line)
            check_expansion(file, size)
            if len(line) > LONGEST_LINE:
                raise RecordError(
                    f"{printable(file)} holds a run of more than {LONGEST_LINE / 1e6:.0f} MB; "
                    "pack fewer steps"
                )
            yield line


def read_archive(file: Path, names: Names) -> tuple[list[Record], list[Problem]]:
    """Read the runs of one archive with their rows; one that cannot be read is left out and named
    by its line.

    Raises:
        RecordError: the file is no archive: nothing in it is a run.
    """
    records: list[Record] = []
    problems: list[Problem] = []
    number = 0
    end = ""
    try:
        for number, line in enumerate(archive_lines(file), start=1):
            try:
                records.append(_archived(line, names))
            except RecordError as error:
                problems.append(
                    Problem("bad run in archive", f"{printable(file)}:{number}", str(error))
                )
                if len(problems) > MOST_BAD:  # of garbage, which may have millions of lines
                    break
    except (OSError, EOFError, lzma.LZMAError) as error:
        end = printable(getattr(error, "strerror", None) or str(error))
    if not records:
        reason = end or (
            f"{number} lines, the first {problems[0].reason}" if problems else "it is empty"
        )
        raise RecordError(
            f"{printable(file)} is no whole archive of runs ({reason}); name a folder of runs, or "
            "a file that `dgbench results pack` wrote; a table of others: import=table "
            f"import.path={printable(file)}"
        )
    if end:
        reason = f"what follows its line {number} is lost ({end}); copy the file again"
        problems.append(Problem("cut archive", printable(file), reason))
    return records, problems


def _archived(line: bytes, names: Names) -> Record:
    """Parse one run with its rows from a line of an archive.

    Raises:
        RecordError: it is no run.
    """
    try:
        content = json.loads(line.decode())
        about = content["run"]
        identity = about["identity"]
        columns = content["rows"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RecordError("is no JSON object with run, identity and rows (half-written?)") from None
    for part, required in (
        (about, _RUN_CHECKS),
        (identity, IDENTITY_CHECKS),
        (columns, ROW_COLUMNS),
    ):
        if type(part) is not dict:
            raise RecordError("lacks a mapping")
        with_default = {"together", *DEFAULTS} if part is not columns else LATER_COLUMNS
        missing = [key for key in required if key not in part and key not in with_default]
        if missing:
            raise RecordError(f"lacks {', '.join(missing)}")
    of_all_seeds = dict.fromkeys((key for key in SEEDED if identity[key] == BY_SEED), 0)
    wrong = (
        first_fault(about, _RUN_CHECKS)
        or first_fault({**identity, **of_all_seeds}, IDENTITY_CHECKS)
        or misfit(identity)
        or _fault_of_columns(columns, about)
    )
    if wrong:
        raise RecordError(wrong)
    for name in LATER_COLUMNS:
        columns.setdefault(name, [None] * about["row_count"])
    numbered = dict(columns)
    for name in ("env", "subset"):
        numbered[name] = [names[text] for text in columns[name]]
    rows = row_array(zip(*(numbered[name] for name in ROW_COLUMNS), strict=True))
    keys = set(zip(columns["step"], columns["env"], columns["subset"], strict=True))
    # a run without one may be a model that was evaluated
    specified = Evaluations.specified(content.get("spec"))
    run = Run(
        printable(about["folder"]),
        {key: names.shared(identity.get(key, DEFAULTS.get(key))) for key in IDENTITY_CHECKS},
        about["status"],
        printable(about["reason"]),
        about["last_step"],
        about["row_count"],
        about.get("together"),
        specified.lacking(keys) if specified else "",
    )
    return run, names.together(rows)


def _fault_of_columns(columns: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """Describe the first fault in the rows of a run; empty where there is none."""
    count = about["row_count"]
    present = [name for name in ROW_COLUMNS if name in columns]
    for name in present:
        if type(columns[name]) is not list or len(columns[name]) != count or not count:
            size = len(columns[name]) if type(columns[name]) is list else "no"
            return f"has {size} values of {name}, row_count is {count}"
        check = ROW_CHECKS[name]
        wrong = next(filter(None, map(check, columns[name])), "")
        if wrong:
            return f"{name} {wrong}"
    for name in {"wrong", *LATER_COLUMNS} & {*present}:
        counts = zip(columns[name], columns["seen"], strict=True)
        if not all(wrong is None or 0 <= wrong <= seen for wrong, seen in counts):
            return "counts more images wrong than seen, or fewer than none"
    if max(columns["step"]) != about["last_step"]:
        return f"last_step is {about['last_step']}, its last row is of step {max(columns['step'])}"
    keys = set(zip(columns["step"], columns["env"], columns["subset"], strict=True))
    return "" if len(keys) == count else f"has {count - len(keys)} rows twice"


class RowCache:
    """Reads the row files under a searched folder, those that have not changed from the cache.

    Args:
        root: the searched folder.
        names: receives the names that rows hold.
        use: False reads all row files and writes nothing.
    """

    def __init__(self, root: Path, names: Names, use: bool) -> None:
        self._file = root / CACHE_FILE
        self._root = root
        self._names = names
        self._use = use
        self._is_damaged = False
        self._kept = self._believed(_loaded(self._file, names)) if use else {}
        self._files: dict[str, RowFile] = {}
        self._anew = 0

    def _believed(self, loaded: dict[str, RowFile] | None) -> dict[str, RowFile]:
        """Return what was loaded, if some row files all over it are those that it was made from;
        else nothing.
        """
        if loaded is None:
            fault = "is damaged"
        elif any(self._is_other(key, loaded[key]) for key in _spread(list(loaded))):
            fault = "was made from other rows"
        else:
            return loaded
        self._is_damaged = True
        log.warning("%s %s; it is made again", printable(self._file), fault)
        return {}

    def _is_other(self, key: str, kept: RowFile) -> bool:
        """Return whether a row file looks unchanged, and holds other bytes than those that were
        read.
        """
        file = self._root / key / ROW_FILE
        try:
            if _stamp(os.stat(file)) != kept.stamp:
                return False  # it is read anew
            with open_regular(file) as handle:
                return Checksum.of_beginning(handle).crc32 != kept.crc32
        except OSError:
            return False

    def read(self, folder: Path) -> RowFile:
        """Read the row file of a run folder under the root, from the cache where it has not
        changed.

        Raises:
            OSError: it cannot be read, or is no regular file.
        """
        file = folder / ROW_FILE
        key = os.path.relpath(folder, self._root)
        content = self._kept.get(key)
        if content is None or content.stamp != _stamp(os.stat(file)):
            content = read_row_file(file, self._names)
            self._anew += content.stamp[0] if content.stamp else 0
        if self._use:
            self._files[key] = content
        return content

    def save(self) -> None:
        """Replace the cache by all row files that were read, where enough is new and the folder can
        be written.
        """
        if self._use and (self._is_damaged or self._anew >= WORTH):
            with suppress(OSError):
                files = {key: file for key, file in self._files.items() if file.stamp}
                write_whole(self._file, lambda file: _pack(files, self._names, file), sync=False)


def _pack(files: Mapping[str, RowFile], names: Names, target: BinaryIO) -> None:
    """Write a cache: an ``.npz`` file, run by run, since all rows are in memory once already."""
    with zipfile.ZipFile(target, "w") as archive:
        # one line about all, and one for each file
        with archive.open("index", "w", force_zip64=True) as lines:
            lines.write(_json_line({"version": _version(), "names": list(names)}))
            for key, file in files.items():
                lines.write(_json_line(_about(key, file)))
        arrays = [rows for file in files.values() for _, rows in file.runs]
        shape = (sum(map(len, arrays)),)
        header = {
            "descr": np.lib.format.dtype_to_descr(ROW_TYPE),
            "fortran_order": False,
            "shape": shape,
        }
        with archive.open("rows.npy", "w", force_zip64=True) as content:  # as numpy.savez writes it
            np.lib.format.write_array_header_2_0(content, header)
            for rows in arrays:
                content.write(rows.tobytes())


def _about(key: str, file: RowFile) -> dict[str, Any]:
    """Collect what a cache says of a file besides its rows."""
    # copies are known once all files are read
    runs = []
    for run, _ in file.runs:
        values = dict(vars(run))
        del values["copies"]
        runs.append(values)
    faults = [astuple(fault) for fault in file.faults]
    return {"folder": key, "stamp": file.stamp, "crc32": file.crc32, "faults": faults, "runs": runs}


def _json_line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _spread(keys: Sequence[str]) -> list[str]:
    """Choose some keys, all over them."""
    places = np.unique(np.linspace(0, max(0, len(keys) - 1), CHECKED).astype(int))
    return [keys[place] for place in places.tolist() if keys]


def _loaded(path: Path, names: Names) -> dict[str, RowFile] | None:
    """Load the row files that a cache holds, by folder; none where there is no cache, or one of
    another version.

    Returns:
        None where it is damaged.
    """
    if not path.is_file():
        return {}
    try:
        content = read_arrays(path)
        lines = io.BytesIO(content.pop("index"))
        rows = content["rows"].astype(ROW_TYPE, copy=False)
        about = json.loads(next(lines))
        if about["version"] != _version():
            return {}
        numbers = np.array([names[name] for name in about["names"]], dtype=np.int32)
        for name in ("env", "subset"):
            rows[name] = numbers[rows[name]]
        files = {}
        start = 0
        for entry in map(json.loads, lines):
            runs = []
            for values in entry["runs"]:
                # with keys that all runs share: those of a parsed line are texts of its own
                identity = {key: names.shared(values["identity"][key]) for key in IDENTITY_KEYS}
                run = Run(**{**values, "identity": identity})
                runs.append((run, rows[start : start + run.row_count]))
                start += run.row_count
            faults = [Fault(*fault) for fault in entry["faults"]]
            files[entry["folder"]] = RowFile(runs, faults, tuple(entry["stamp"]), entry["crc32"])
        if start != len(rows):
            return None
        return files
    except Exception:  # cut short or of another make, in any way: then the row files are read
        return None


@functools.cache
def _version() -> str:
    """Compute a version that changes with the code that reads rows and with Python, which decides
    what is printable.
    """
    modules = dgbench.records.rows, dgbench.records.evaluations, dgbench.records.status
    files = [str(module.__file__) for module in modules]
    content = b"".join(Path(file).read_bytes() for file in [*files, __file__])
    return hashlib.sha256(content).hexdigest() + sys.version

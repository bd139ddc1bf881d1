"""Result rows: the row, and the file that rows are kept in.

Everything that dgbench reports is a function of rows. A row file (``errors.jsonl``) holds one JSON
object per line: the identity of the run that wrote it (:mod:`.run_identity`) and one counted error.
No torch is imported here: reports run on a login node.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from dgbench.errors import RecordError
from dgbench.records.checks import (
    LARGEST_COUNT,
    Check,
    first_fault,
    number,
    optional,
    printable_text,
    shown,
    truth,
    whole,
)
from dgbench.records.files import Checksum, append_lines, read_regular, write_whole
from dgbench.records.run_identity import DEFAULTS, IDENTITY_CHECKS, RunIdentity, defaults_of, misfit

ROW_FILE = "errors.jsonl"
SHIFT_FILE = "shifts.jsonl"  #: rows of another kind, see ``dgbench.records.shift_rows``
PLAN_FILE = "planned.json"  #: in a job's folder: the run folders that it means to fill
FEATURE_FILE = "features.npz"  #: of an evaluated run: features of some images
IDENTITY_FILE = "identity.json"  #: of what code, packages, machine and data a run is made

SUBSETS = ("train", "val", "test")


#: counts of images, at most those seen, that rows may lack
LATER_COUNTS = ("majority_wrong", "worst_class_wrong", "balanced_wrong")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One counted error: how one run did on one subset of one environment at one step."""

    identity: RunIdentity = field(repr=False)
    step: int  #: optimizer updates done
    env: str  #: environment scored
    subset: str  #: ``train``, ``val`` or ``test``
    #: True when the run never trained on this environment (flexible: on these classes of it)
    held_out: bool
    seen: int  #: images scored
    wrong: float  #: images misclassified; the expected count when the evaluation is exact
    loss: float  #: mean cross entropy in nats
    #: runs that trained together when it was written; None in rows older than the key
    together: int | None = None
    #: scored images that a classifier gets wrong which always predicts the majority class of the
    #: run's training images, counted as ``wrong`` is; None in rows older than the key
    majority_wrong: float | None = None
    #: scored images that would be wrong if every class had the error of the worst one; None unless
    #: ``trainer.class_errors``
    worst_class_wrong: float | None = None
    #: scored images that would be wrong if all classes that occur were equally many; None unless
    #: ``trainer.class_errors``
    balanced_wrong: float | None = None

    @property
    def error(self) -> float:
        """Fraction wrong, in [0, 1]."""
        return self.wrong / self.seen

    def to_json(self) -> str:
        """Format the row as one line, identity included, without the line end."""
        flat = asdict(self.identity)
        for key in ("user_code", "seed_moves", "n_classes", "unlearnable", "adaptation"):
            if flat[key] == DEFAULTS[key]:  # as in most runs
                del flat[key]
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "identity"}
        values["env_held_out"] = values.pop("held_out")
        for key in LATER_COUNTS:
            if values[key] is None:
                del values[key]
        return json.dumps({**flat, **values}, separators=(",", ":"))


@dataclass(frozen=True)
class RowProblem:
    """A line that could not be used, and why."""

    file: str
    line: int  #: 1-based
    reason: str


class ParsedRow(NamedTuple):
    """A good line of a row file."""

    line: int  #: 1-based
    #: its keys of a :class:`RunIdentity`; the same object in lines that agree in all these keys
    identity: dict[str, Any]
    own: dict[str, Any]  #: its other keys


def append_rows(path: Path | None, rows: Iterable[Row]) -> bytes:
    """Append rows to a file, see :func:`~dgbench.records.files.append_lines`; None writes nothing.

    Returns:
        the lines.

    Raises:
        OSError: the file cannot be written; what was there before stays readable.
    """
    lines = [row.to_json() for row in rows]
    if path is not None:
        append_lines(path, lines)
    return "".join(f"{line}\n" for line in lines).encode()


def read_rows(path: Path) -> tuple[list[dict[str, Any]], list[RowProblem]]:
    """Read all good rows of a file as flat dictionaries, and the lines that had to be dropped.

    Keys are those of :class:`RunIdentity` and :class:`Row`; whether the *environment* was held out
    stands under ``env_held_out``, the list of all held-out environments under ``held_out``. A key
    that a row lacks because it is older than the key gets its default. Every value has the type
    that its field declares.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    rows, problems = parse_rows(read_regular(path))
    flat = [{**DEFAULTS, **row.identity, **row.own} for row in rows]
    return flat, [RowProblem(str(path), line, reason) for line, reason in problems]


def parse_rows(content: bytes) -> tuple[list[ParsedRow], list[tuple[int, str]]]:
    """Parse the content of a row file.

    Returns:
        its good rows; and line number and reason of each that had to be dropped.
    """
    parser = RowParser()
    rows: list[ParsedRow] = []
    problems: list[tuple[int, str]] = []
    known: dict[str, Any] = {}
    places: list[int] = []
    waiting: list[bytes] = []  # lines of one identity, which are parsed together

    def parse_waiting() -> None:
        together = parser.values_of(waiting)
        for position, place in enumerate(places):
            values = together[position] if together else None
            if values is not None:
                rows.append(ParsedRow(place, known, values))
                continue
            try:
                rows.append(ParsedRow(place, *parser.parse(waiting[position])))
            except RecordError as error:
                problems.append((place, str(error)))
        places.clear()
        waiting.clear()

    for place, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        identity = parser.known(line)
        if identity is not known:
            parse_waiting()
        if identity is not None:
            known = identity
            places.append(place)
            waiting.append(line)
            continue
        try:
            rows.append(ParsedRow(place, *parser.parse(line)))
        except RecordError as error:
            problems.append((place, str(error)))
    parse_waiting()
    return rows, problems


def cleaned(path: Path) -> str:
    """Remove what is no row, and repeated lines, from the file of a finished run.

    The file is written whole.

    Returns:
        what was removed, in words; no words if nothing was.

    Raises:
        OSError: the file cannot be read or written.
    """
    content = read_regular(path)
    faulty = {line for line, _ in parse_rows(content)[1]}
    good: dict[bytes, None] = {}
    repeated = 0
    for place, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip() or place in faulty:
            continue
        repeated += line in good
        good[line] = None
    counts = {"that are no rows": len(faulty), "that stand there twice": repeated}
    removed = [f"{count} lines {fault}" for fault, count in counts.items() if count]
    if removed:
        write_whole(path, b"".join(line + b"\n" for line in good))
    return " and ".join(removed)


def row_of(flat: dict[str, Any]) -> Row:
    """Build a row from a flat dictionary as :func:`read_rows` gives it."""
    names = [f.name for f in fields(Row) if f.name not in ("identity", "held_out")]
    identity = RunIdentity(**{f.name: flat[f.name] for f in fields(RunIdentity)})
    values = {name: flat[name] for name in names}
    return Row(identity=identity, held_out=flat["env_held_out"], **values)


LATER_KEYS = ("together", *LATER_COUNTS)  #: keys of a row that it may lack, which means None

CUT = b',"step":'  #: where a line passes from the identity to the rest
_decode = json.JSONDecoder().decode


def lines_before(path: Path, step: int) -> Checksum:
    """Compute the checksum of the lines of a row file before its rows of ``step`` and later.

    A file that does not exist counts as an empty one.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return Checksum()
    lines = content.splitlines(keepends=True)
    later = [row.line for row in parse_rows(content)[0] if row.own["step"] >= step]
    if later:
        lines = lines[: later[0] - 1]
    return Checksum() + b"".join(lines)


def decode_together(objects: Sequence[bytes]) -> list[Any]:
    """Decode JSON objects at once, which is much faster than one by one.

    Returns:
        a value for each, or nothing if some are none.
    """
    # a number between two objects, so that halves of lines never make a whole
    try:
        values = _decode(f"[{b',0,'.join(objects).decode()}]")
    except (ValueError, RecursionError):
        return []
    if len(values) != 2 * len(objects) - 1 or any(values[1::2]):
        return []
    return list(values[::2])


class RowParser:
    """Lines of one row file."""

    def __init__(self) -> None:
        self._heads: dict[bytes, dict[str, Any]] = {}  # beginning of lines, as written -> identity
        self._identities: dict[str, dict[str, Any]] = {}
        self._names: set[str] = set()  # of environments

    def known(self, line: bytes) -> dict[str, Any] | None:
        """Return the identity of a line whose beginning was read before, or None."""
        return self._heads.get(line[: line.rfind(CUT)])

    def values_of(self, lines: Sequence[bytes]) -> list[dict[str, Any] | None]:
        """Parse what several lines of one known identity have besides it, at once.

        This is much faster than one by one.

        Returns:
            the other keys of each line, None for one that :meth:`parse` must look at; nothing if
            all must be.
        """
        if len(lines) < 2:
            return []
        tails = [b"{" + line[line.rfind(CUT) + 1 :] for line in lines]
        sound: list[dict[str, Any] | None] = []
        for values in decode_together(tails):
            sound.append(values if self._is_sound(values) else None)
        return sound

    def _is_sound(self, values: Any) -> bool:
        """Return whether these are the keys of a row besides its identity, with good values."""
        if type(values) is not dict:
            return False
        for key in LATER_KEYS:
            values.setdefault(key, None)
        if values.keys() != ROW_CHECKS.keys():
            return False
        if type(values["env_held_out"]) is not bool:
            return False
        if type(values["subset"]) is not str or values["subset"] not in SUBSETS:
            return False
        return _has_good_numbers(values) and self._is_name(values["env"])

    def _is_name(self, env: Any) -> bool:
        """Return whether this names an environment; each name is checked once."""
        if type(env) is not str:
            return False
        if env not in self._names and not printable_text(env):
            self._names.add(env)
        return env in self._names

    def parse(self, line: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        """Parse one line.

        Returns:
            the keys of the identity that the line has, the same object for equal ones; and its
            other keys.

        Raises:
            RecordError: it is no row; why.
        """
        cut = line.rfind(CUT)
        identity = self._heads.get(line[:cut])
        if identity is not None:
            try:
                values = _object(b"{" + line[cut + 1 :])
                for key in LATER_KEYS:
                    values.setdefault(key, None)
                if len(values) == len(ROW_CHECKS) and not _fault(values):
                    return identity, values
            except (RecordError, KeyError):
                pass  # the whole line tells what is wrong
        return self._whole(line, cut)

    def _whole(self, line: bytes, cut: int) -> tuple[dict[str, Any], dict[str, Any]]:
        flat = _object(line)
        missing = NEEDED - flat.keys()
        if missing:
            raise RecordError(f"lacks {', '.join(sorted(missing))}")
        identity = {key: flat[key] for key in IDENTITY_CHECKS if key in flat}
        values = {key: flat.get(key) for key in ROW_CHECKS}
        fault = first_fault(identity, IDENTITY_CHECKS) or misfit(identity) or _fault(values)
        if fault:
            raise RecordError(fault)
        identity = self._identities.setdefault(json.dumps(identity, sort_keys=True), identity)
        if cut > 0 and self._is_head(line[:cut], identity):
            self._heads[line[:cut]] = identity
        return identity, values

    def _is_head(self, text: bytes, identity: Mapping[str, Any]) -> bool:
        """Return whether a line's beginning, closed by a brace, is that identity and no more."""
        try:
            head = _object(text + b"}")
        except RecordError:
            return False
        if not head.keys().isdisjoint(ROW_CHECKS):
            return False
        return {key: value for key, value in head.items() if key in IDENTITY_CHECKS} == identity


def _has_good_numbers(values: Mapping[str, Any]) -> bool:
    """Return whether the numbers of a row pass :data:`ROW_CHECKS`, without a call for each."""
    step = values["step"]
    if type(step) is not int or not 0 <= step <= LARGEST_COUNT:
        return False
    seen = values["seen"]
    if type(seen) is not int or not 1 <= seen <= LARGEST_COUNT:
        return False
    wrong = values["wrong"]
    if (type(wrong) is not float and type(wrong) is not int) or not 0 <= wrong <= seen:
        return False
    for key in LATER_COUNTS:
        count = values[key]
        if count is None:
            continue
        if (type(count) is not float and type(count) is not int) or not 0 <= count <= seen:
            return False
    cross_entropy = values["loss"]
    if type(cross_entropy) is not float or math.isnan(cross_entropy):
        return False
    together = values["together"]
    return together is None or (type(together) is int and 1 <= together <= LARGEST_COUNT)


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = _decode(text.decode())
    except (ValueError, RecursionError):
        value = None
    if type(value) is not dict:
        raise RecordError("not a whole JSON object (half-written?)")
    return value


def _fault(values: Mapping[str, Any]) -> str:
    for key, check in ROW_CHECKS.items():
        fault = check(values[key])
        if fault:
            return f"{key} {fault}"
    wrong = values["wrong"]
    seen = values["seen"]
    if not 0 <= wrong <= seen:
        return f"{wrong} wrong of {seen} seen is no error"
    for key in LATER_COUNTS:
        count = values[key]
        if count is not None and not 0 <= count <= seen:
            return f"{count} {key} of {seen} seen is no error"
    return ""


def subset(value: Any) -> str:
    """Check for the name of a subset."""
    if type(value) is str and value in SUBSETS:
        return ""
    return f"is {shown(value)}, not {', '.join(SUBSETS)}"


def loss(value: Any) -> str:
    """Check for a number or infinity, which cross entropy reaches; not NaN."""
    if type(value) is float and not math.isnan(value):
        return ""
    return number(value)


#: of the keys of a row besides its identity
ROW_CHECKS: dict[str, Check] = {
    "step": whole(0, LARGEST_COUNT),
    "env": printable_text,
    "subset": subset,
    "env_held_out": truth,
    "seen": whole(1, LARGEST_COUNT),
    "wrong": number,
    "loss": loss,
    "together": optional(whole(1, LARGEST_COUNT)),
    **dict.fromkeys(LATER_COUNTS, optional(number)),
}


#: keys that no line lacks, however old
NEEDED = frozenset((*IDENTITY_CHECKS, *ROW_CHECKS)) - DEFAULTS.keys() - defaults_of(Row).keys()

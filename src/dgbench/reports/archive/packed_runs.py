"""Packed runs: one JSON object a line in a ``.jsonl.xz``, with all that a run folder says of how it was made.

A line holds ``run`` (folder, status and identity), ``rows`` (by column), ``spec`` (what the hash of the run is taken
over), ``sessions`` (code, packages, machine and command of every start) and ``fingerprint`` (of the dealt images).
Reports read ``run`` and ``rows``. Names of hosts and users, processes and folders of a machine are left out.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from dgbench.errors import RecordError
from dgbench.records.files import read_regular, write_whole
from dgbench.records.rows import IDENTITY_FILE, first_fault, list_of, mapping_of, optional, printable_text, shown, whole
from dgbench.records.status import DONE, FAILED, PROGRESS_FILE
from dgbench.reports.reading.archive_places import archives_in
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.repetitions import BY_SEED, SEEDED
from dgbench.reports.reading.runs import ROW_COLUMNS, Run

LOSS_DIGITS = 6  # of single precision, which is all that a table keeps
TIME = "%Y-%m-%dT%H:%M:%S%z"  # of a session's start
Line = dict[str, Any]  # one packed run


def _time(value: Any) -> str:
    try:
        datetime.strptime(str(value), TIME)
    except ValueError:
        return f"is {shown(value)}, no time such as 2026-11-23T17:36:54+0000"
    return ""


#: of a session; the rest names a host, a process or folders
_SESSION_KEYS = (
    "time", "typed", "threads", "code", "commit", "dirty", "python", "packages", "cpu", "cores", "gpus", "cuda",
    "deterministic", "device", "resumed_from", "together",
)  # fmt: skip
FOLDERS = re.compile(r"(?:~|(?<![\w.:/-]))/(?:[^/\s,=\[\]]+/)*")  #: of one machine, in words that were typed
#: types of what is read of a session
_SESSION = {
    "time": _time,
    "typed": list_of(printable_text),
    "gpus": list_of(printable_text),
    "packages": mapping_of(optional(printable_text)),
    "threads": whole(0),
    "cores": optional(whole(0)),
    "seconds": whole(0),
    **dict.fromkeys(("python", "cpu", "device", "system", "code"), printable_text),
}
_PLATFORM = re.compile(r"^(\w+)-.*?-(\w+)-with-(.+)$")


def pack_lines(roots: Iterable[str | Path]) -> tuple[list[Line], list[str]]:
    """The finished and the diverged runs under some folders or packed files.

    Args:
        roots: as ``runs=[...]`` of a report takes them.

    Returns:
        one line per run, in the order they were found; and what is left out, in words.

    Raises:
        RecordError: there is no run, or two records of one run disagree.
    """
    roots = list(roots)
    collection = collect(roots)
    if clash := next((p for p in collection.problems if p.kind == "disagreement"), None):
        raise RecordError(f"{clash.where}: {clash.reason}; name folders that hold one of the two")
    left_out = [f"{problem.kind}: {problem.where}: {problem.reason}" for problem in collection.problems]
    packed = _packed_before(roots)
    kept = [
        packed.get((run.identity["run"], run.folder), line)
        for line, run in _lines(collection)
        if run.status in (DONE, FAILED)
    ]
    return kept, left_out


def write_lines(lines: Iterable[Mapping[str, Any]], file: Path) -> None:
    """Write packed runs, the same bytes for the same runs."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    write_whole(file, lzma.compress(text.encode(), preset=9))


def read_lines(file: Path) -> list[Line]:
    """The packed runs of a file, as they are.

    Raises:
        RecordError: it cannot be read, or a line is no packed run.
    """
    try:
        lines = [json.loads(text) for text in lzma.decompress(read_regular(file)).splitlines()]
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise RecordError(f"{file} cannot be read ({error}); copy it again") from None
    for number, line in enumerate(lines, start=1):
        if not _is_packed(line):
            raise RecordError(f"{file}:{number} is no packed run; write it with `dgbench results pack`")
    return lines


def _is_packed(line: Any) -> bool:
    """Whether it has the parts of a packed run, of the right types; those of ``run`` and ``rows`` are for reports."""
    if not isinstance(line, dict) or not isinstance(line.get("run"), dict) or not isinstance(line.get("rows"), dict):
        return False
    spec, sessions = line.get("spec", {}), line.get("sessions", [])
    return (
        isinstance(spec, dict)
        and all(isinstance(spec.get(part, {}), dict) for part in ("dataset", "training", "fold", "hparams"))
        and isinstance(sessions, list)
        and all(isinstance(session, dict) and not first_fault(session, _SESSION) for session in sessions)
        and all(key in session for session in sessions for key in _SESSION if key != "seconds")
    )


def write_archive(collection: Collection, file: Path) -> None:
    """Write every run of a collection that has rows."""
    write_lines((line for line, _ in _lines(collection)), file)


def _lines(collection: Collection) -> Iterable[tuple[Line, Run]]:
    for number, own in collection.rows.groupby("run", sort=True):
        run = collection.runs[number]  # type: ignore[index]  # pandas does not know its keys
        columns = {name: own[name].tolist() for name in ROW_COLUMNS}
        columns["loss"] = [round(value, LOSS_DIGITS) for value in columns["loss"]]
        about, made = asdict(run), _made_by(Path(run.folder))
        about["folder"] = "/".join(Path(run.folder).parts[-2:])
        if made:  # `by seed` is said of a whole report, not of a run
            folded = [key for key in SEEDED if run.identity[key] == BY_SEED]
            about["identity"] = {**run.identity, **{key: made["spec"]["dataset"][key] for key in folded}}
        yield {"run": about, **made, "rows": columns}, run


def _packed_before(roots: Iterable[str | Path]) -> dict[tuple[str, str], Line]:
    """(run, folder) -> its line in the packed files among some places."""
    files = [file for root in map(Path, roots) for file in ([root] if root.is_file() else archives_in(root)[0])]
    lines = [line for file in files for line in read_lines(file)]
    return {(line["run"]["identity"]["run"], line["run"]["folder"]): line for line in lines}


def _made_by(folder: Path) -> Line:
    """``spec``, ``sessions`` and ``fingerprint`` of a run folder; empty where it does not keep them."""
    try:
        document = json.loads(read_regular(folder / IDENTITY_FILE))
        sessions = [_session(session) for session in document["sessions"]]
        made = {"spec": document["spec"], "sessions": sessions, "fingerprint": document["dataset"]["fingerprint"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if (seconds := _seconds(folder, sessions)) is not None:
        sessions[-1]["seconds"] = seconds
    return made


def _session(session: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: session[key] for key in _SESSION_KEYS if key in session}
    kept["typed"] = [FOLDERS.sub(".../", word) for word in session.get("typed", [])]
    kept["system"] = _PLATFORM.sub(r"\1 \2 \3", str(session.get("system", "")))
    return kept


def _seconds(folder: Path, sessions: list[dict[str, Any]]) -> int | None:
    """From the last start of a run to its last sign of life."""
    try:
        ended = float(json.loads(read_regular(folder / PROGRESS_FILE))["time"])
        return max(0, round(ended - started(sessions[-1])))
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def started(session: Mapping[str, Any]) -> float:
    """When a session began, in seconds since 1970.

    Raises:
        ValueError: its time is none.
    """
    return datetime.strptime(str(session["time"]), TIME).timestamp()

"""Runs with their rows from archives: packed files of one line for each run
(``tools/results.py`` writes them).

A line that is no run is left out and named; a file without any run is refused.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.errors import RecordError
from dgbench.records.checks import LARGEST_COUNT, first_fault, optional, shown, whole
from dgbench.records.evaluations import Evaluations
from dgbench.records.files import check_expansion, open_regular
from dgbench.records.rows import ROW_CHECKS
from dgbench.records.run_identity import DEFAULTS, IDENTITY_CHECKS, misfit
from dgbench.records.status import WORDS
from dgbench.reports.reading.folders import UNKNOWN, Problem, printable
from dgbench.reports.reading.row_files import (
    BY_SEED,
    LATER_COLUMNS,
    ROW_COLUMNS,
    SEEDED,
    Names,
    Run,
    row_array,
)

if TYPE_CHECKING:
    from dgbench.reports.reading.row_files import Record

MOST_BAD_LINES = 1000  # that are no runs; then the rest of the archive is no better
LONGEST_LINE = 16_000_000  # bytes of one packed run, some 250,000 rows
_COUNT = whole(0, LARGEST_COUNT)


def _text(value: Any) -> str:
    """Return what is wrong with a value that must be text, or an empty text."""
    return "" if type(value) is str else f"is {shown(value)}, not text"


def _status(value: Any) -> str:
    """Return what is wrong with the word of a status, or an empty text."""
    return "" if value in (*WORDS, UNKNOWN) else f"is {shown(value)}, no status"


#: of the keys of a run besides its identity
_RUN_CHECKS = {
    "folder": _text,
    "status": _status,
    "reason": _text,
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
    """Read the runs of one archive with their rows.

    A run that cannot be read is left out, and its line is named.

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
                if len(problems) > MOST_BAD_LINES:  # of garbage, which may have millions of lines
                    break
    except (OSError, EOFError, lzma.LZMAError) as error:
        end = printable(getattr(error, "strerror", None) or str(error))
    if not records:
        reason = end or (
            f"{number} lines, the first {problems[0].reason}" if problems else "it is empty"
        )
        raise RecordError(
            f"{printable(file)} is no whole archive of runs ({reason}); name a folder of runs, or "
            "a file that `tools/results.py pack` wrote; a table of others: import=table "
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
    rows = row_array(columns, names)
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
    """Describe the first fault in the rows of a run; return an empty text if there is none."""
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

"""Estimates of shift under folders: every ``shifts.jsonl`` is read, and each estimate taken once.

Whatever cannot be used is named.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dgbench.configuration import command_words
from dgbench.errors import RecordError
from dgbench.phases import tracked
from dgbench.records.shift_rows import (
    SHIFT_FILE,
    ShiftRow,
    read_shift_rows,
)
from dgbench.records.status import DONE, STATUS_FILE, read_status
from dgbench.reports.reading.folders import (
    UNREADABLE_FILE,
    Problem,
    nothing_found,
    places,
    printable,
    searched,
)

TOLERANCE = 1e-9  # that sums in another order may change


@dataclass(frozen=True)
class ShiftCollection:
    """All estimates of shift under some roots, each once."""

    rows: list[ShiftRow]
    problems: list[Problem]
    folders: list[str]  #: those that the rows are from


def read_shifts(roots: str | Path | Iterable[str | Path]) -> ShiftCollection:
    """Read every ``shifts.jsonl`` under ``roots``, recursively; hidden folders are passed over.

    Args:
        roots: folders, or one.

    Raises:
        RecordError: there is not one estimate.
    """
    paths = places(roots)
    problems: list[Problem] = []
    placed: list[tuple[str, ShiftRow]] = []  # folder, row
    seen: set[str] = set()
    with_rows: list[Path] = []
    for root in paths:
        for folder, files in searched(root, (SHIFT_FILE, STATUS_FILE), problems):
            real = os.path.realpath(folder)
            if SHIFT_FILE in files and real not in seen:
                seen.add(real)
                with_rows.append(Path(folder))
    for place in tracked(with_rows, "reading estimates", len(with_rows), "folders"):
        placed += _read_folder(place, problems)
    if not placed:
        estimate = " ".join([*command_words("shift"), "dataset=pacs"])
        raise RecordError(
            f"{nothing_found(paths, problems, f'rows of {SHIFT_FILE}')}; make some with "
            f"`{estimate}`, or name a folder with runs=[DIR]"
        )
    placed = _each_once(placed, problems)
    folders = list(dict.fromkeys(folder for folder, _ in placed))
    return ShiftCollection([row for _, row in placed], list(dict.fromkeys(problems)), folders)


def _read_folder(folder: Path, problems: list[Problem]) -> list[tuple[str, ShiftRow]]:
    path = printable(folder)
    file = folder / SHIFT_FILE
    status = read_status(folder)
    if status.word not in ("", DONE):
        reason = f"{printable(status.reason)}; " if status.reason else ""
        problems.append(
            Problem(
                f"{status.word.lower()} estimates", path, f"{reason}the same command continues them"
            )
        )
    try:
        rows, faults = read_shift_rows(file)
    except OSError as error:
        problems.append(
            Problem(
                UNREADABLE_FILE, printable(file), f"{error.strerror or error}; make it readable"
            )
        )
        return []
    problems += [
        Problem("unreadable row", f"{printable(file)}:{fault.line}", printable(fault.reason))
        for fault in faults
    ]
    if not rows and not faults:
        problems.append(Problem("estimates without rows", path, f"nothing in {SHIFT_FILE} yet"))
    return [(path, row) for row in rows]


def _each_once(
    placed: Sequence[tuple[str, ShiftRow]], problems: list[Problem]
) -> list[tuple[str, ShiftRow]]:
    """Keep one row for each estimate: of the folder with the most rows, then the first by name."""
    count = Counter(folder for folder, _ in placed)
    by_estimate: dict[tuple[Any, ...], list[tuple[str, ShiftRow]]] = defaultdict(list)
    for folder, row in placed:  # what is estimated and how; not by which version of the code
        identity = {
            key: value for key, value in asdict(row.identity).items() if key not in ("run", "code")
        }
        by_estimate[text_of(identity), *row.key].append((folder, row))
    kept = []
    differences_of: dict[tuple[str, str], list[str]] = defaultdict(list)
    for copies in by_estimate.values():
        used, *rest = sorted(copies, key=lambda one: (-count[one[0]], one[0]))
        kept.append(used)
        for folder, row in rest:
            differences_of[folder, used[0]].append(_difference(used[1], row))
    for (folder, used_folder), differences in differences_of.items():
        differ = [text for text in differences if text]
        kind = "disagreement" if differ else "duplicate"
        text = f"{len(differences)} estimates stand in {used_folder} too, which is used"
        if differ:
            text += f"; {len(differ)} differ, e.g. {differ[0]}"
        problems.append(Problem(kind, folder, text))
    return kept


def _difference(used: ShiftRow, other: ShiftRow) -> str:
    """Describe how two rows of one estimate differ; return an empty text if they agree."""
    estimate = f"{used.pair}, {used.kind} {used.number}, null={used.null}"
    code = (
        ""
        if used.identity.code == other.identity.code
        else f"; code {used.identity.code}, {other.identity.code}"
    )
    if bool(used.refused) != bool(other.refused):
        return f"{estimate}: one of them is refused{code}"
    apart = {}
    for name in sorted({*used.values, *other.values}):
        if name in used.values and name in other.values:
            apart[name] = abs(used.values[name] - other.values[name])
        else:
            apart[name] = math.inf
    farthest = max(apart, key=apart.__getitem__, default="")
    if not farthest or apart[farthest] <= TOLERANCE:
        return ""
    return f"{estimate}: {farthest} differs by {apart[farthest]:.3g}{code}"


def text_of(values: Mapping[str, Any]) -> str:
    """Write values as JSON, the same text for equal values."""
    return json.dumps(values, sort_keys=True, default=str)

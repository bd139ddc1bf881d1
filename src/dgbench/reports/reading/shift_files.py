"""Finds ``shifts.jsonl`` files and reads their rows, each estimate once. Whatever cannot be used is named."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dgbench.configuration import command_words
from dgbench.errors import RecordError
from dgbench.records.shift_rows import SHIFT_FILE, ShiftRow, read_shift_rows
from dgbench.records.status import DONE, STATUS_FILE, read_status
from dgbench.reports.reading.folders import (
    NO_FOLDER,
    UNREADABLE_FILE,
    Problem,
    nothing_found,
    places,
    printable,
    searched,
)

TOLERANCE = 1e-9  # that sums in another order may change

_Found = tuple[str, ShiftRow]  # folder, row


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
    where, problems = places(roots), []
    found: list[_Found] = []
    seen: set[str] = set()
    for root in where:
        if not os.path.isdir(root):
            problems.append(Problem(NO_FOLDER, printable(root), "nothing read from it"))
            continue
        for folder, files in searched(root, (SHIFT_FILE, STATUS_FILE), problems):
            if SHIFT_FILE in files and (real := os.path.realpath(folder)) not in seen:
                seen.add(real)
                found += _read_folder(Path(folder), problems)
    if not found:
        estimate = " ".join([*command_words("shift"), "dataset=pacs"])
        raise RecordError(
            f"{nothing_found(where, problems, f'rows of {SHIFT_FILE}')}; make some with `{estimate}`, or name a folder "
            "with runs=[DIR]"
        )
    kept = _each_once(found, problems)
    folders = list(dict.fromkeys(folder for folder, _ in kept))
    return ShiftCollection([row for _, row in kept], list(dict.fromkeys(problems)), folders)


def _read_folder(folder: Path, problems: list[Problem]) -> list[_Found]:
    where, file = printable(folder), folder / SHIFT_FILE
    status = read_status(folder)
    if status.word not in ("", DONE):
        why = f"{printable(status.reason)}; " if status.reason else ""
        problems.append(Problem(f"{status.word.lower()} estimates", where, f"{why}the same command continues them"))
    try:
        rows, faults = read_shift_rows(file)
    except OSError as error:
        problems.append(Problem(UNREADABLE_FILE, printable(file), f"{error.strerror or error}; make it readable"))
        return []
    problems += [
        Problem("unreadable row", f"{printable(file)}:{fault.line}", printable(fault.reason)) for fault in faults
    ]
    if not rows and not faults:
        problems.append(Problem("estimates without rows", where, f"nothing in {SHIFT_FILE} yet"))
    return [(where, row) for row in rows]


def _each_once(found: Sequence[_Found], problems: list[Problem]) -> list[_Found]:
    """One row for each estimate: of the folder with the most rows, then the first by name."""
    count: dict[str, int] = defaultdict(int)
    same: dict[tuple[Any, ...], list[_Found]] = defaultdict(list)
    for folder, row in found:
        count[folder] += 1
        same[_content(row), *row.key].append((folder, row))
    kept: list[_Found] = []
    told: dict[tuple[str, str], list[str]] = defaultdict(list)
    for rows in same.values():
        used, *rest = sorted(rows, key=lambda one: (-count[one[0]], one[0]))
        kept.append(used)
        for folder, row in rest:
            told[folder, used[0]].append(_difference(used[1], row))
    for (folder, used_folder), differences in told.items():
        differ = [text for text in differences if text]
        kind = "disagreement" if differ else "duplicate"
        text = f"{len(differences)} estimates stand in {used_folder} too, which is used"
        problems.append(Problem(kind, folder, f"{text}; {len(differ)} differ, e.g. {differ[0]}" if differ else text))
    return kept


def _content(row: ShiftRow) -> str:
    """What is estimated and how; not by which version of the code."""
    identity = {key: value for key, value in asdict(row.identity).items() if key not in ("run", "code")}
    return json.dumps(identity, sort_keys=True, default=str)


def _difference(used: ShiftRow, other: ShiftRow) -> str:
    """How two rows of one estimate differ, in words; empty where they agree."""
    who = f"{used.pair}, {used.kind} {used.number}, null={used.null}"
    code = "" if used.identity.code == other.identity.code else f"; code {used.identity.code}, {other.identity.code}"
    if bool(used.refused) != bool(other.refused):
        return f"{who}: one of them is refused{code}"
    name, apart = _farthest(used.values, other.values)
    return f"{who}: {name} differs by {apart:.3g}{code}" if apart > TOLERANCE else ""


def _farthest(ours: Mapping[str, float], theirs: Mapping[str, float]) -> tuple[str, float]:
    """The value that differs most, infinitely where only one has it."""
    names = sorted({*ours, *theirs})
    apart = [abs(ours[name] - theirs[name]) if name in ours and name in theirs else math.inf for name in names]
    return max(zip(names, apart, strict=True), key=lambda one: one[1], default=("", 0.0))

"""Reads the packed files of runs that :mod:`dgbench.reports.archive.entries` writes, and finds them in a folder."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dgbench.errors import RecordError
from dgbench.records.files import open_regular, read_regular
from dgbench.records.rows import (
    DEFAULTS,
    IDENTITY_CHECKS,
    LARGEST_COUNT,
    ROW_CHECKS,
    first_fault,
    misfit,
    optional,
    shown,
    whole,
)
from dgbench.records.status import WORDS
from dgbench.reports.reading.folders import UNKNOWN, Problem, printable
from dgbench.reports.reading.row_files import BY_SEED, ROW_COLUMNS, SEEDED, Names, Run, row_array

if TYPE_CHECKING:
    from dgbench.reports.reading.row_files import Record

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


def read_archives(places: Sequence[Path], names: Names) -> tuple[list[Record], list[Problem]]:
    """The runs of all archives that are named, or that a folder stands for (:func:`archives_in`).

    Args:
        places: files and folders.
        names: receives the names that rows hold.

    Returns:
        the runs with their rows; and what is left out.

    Raises:
        RecordError: a file that is named is no archive.
    """
    found: list[Record] = []
    problems: list[Problem] = []
    for place in places:
        named = os.path.isfile(place)
        files, frozen = ([place], []) if named else archives_in(place)
        problems += frozen
        for file in files:
            try:
                runs, left_out = read_archive(file, names)
            except RecordError as error:
                if named:
                    raise
                problems.append(Problem("unreadable archive", printable(file), str(error)))
                continue
            found += runs
            problems += left_out
    return found, problems


def read_archive(file: Path, names: Names) -> tuple[list[Record], list[Problem]]:
    """The runs of one archive, as :func:`read_archives`; a run that cannot be read is left out and named by its line.

    Raises:
        RecordError: the file is no archive: nothing in it is a run.
    """
    found: list[Record] = []
    problems: list[Problem] = []
    number, end = 0, ""
    try:
        with open_regular(file) as handle, lzma.open(handle) as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    found.append(_record(line, names))
                except RecordError as error:
                    problems.append(Problem("bad run in archive", f"{printable(file)}:{number}", str(error)))
    except (OSError, EOFError, lzma.LZMAError) as error:
        end = printable(getattr(error, "strerror", None) or str(error))
    if not found:
        why = end or (f"{number} lines, the first {problems[0].reason}" if problems else "it is empty")
        raise RecordError(
            f"{printable(file)} is no whole archive of runs ({why}); name a folder of runs, or a file that "
            "`dgbench results pack` wrote"
        )
    if end:
        why = f"what follows its line {number} is lost ({end}); copy the file again"
        problems.append(Problem("cut archive", printable(file), why))
    return found, problems


def _record(line: bytes, names: Names) -> Record:
    """One run with its rows.

    Raises:
        RecordError: it is none; why.
    """
    try:
        content = json.loads(line.decode())
        about, identity, columns = content["run"], content["run"]["identity"], content["rows"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RecordError("is no JSON object with run, identity and rows (half-written?)") from None
    for part, keys in ((about, _RUN_CHECKS), (identity, IDENTITY_CHECKS), (columns, ROW_COLUMNS)):
        known = {"together", *DEFAULTS} if part is not columns else ()
        if type(part) is not dict or (missing := [key for key in keys if key not in part and key not in known]):
            raise RecordError(f"lacks {', '.join(missing) if type(part) is dict else 'a mapping'}")
    checked = {**identity, **{key: 0 for key in SEEDED if identity[key] == BY_SEED}}
    wrong = first_fault(about, _RUN_CHECKS) or first_fault(checked, IDENTITY_CHECKS) or misfit(identity)
    if wrong or (wrong := _fault(columns, about)):
        raise RecordError(wrong)
    env, subset = (list(map(names.number, columns[name])) for name in ("env", "subset"))
    rows = row_array(zip(*({**columns, "env": env, "subset": subset}[name] for name in ROW_COLUMNS), strict=True))
    run = Run(
        printable(about["folder"]),
        {key: identity.get(key, DEFAULTS.get(key)) for key in IDENTITY_CHECKS},
        about["status"],
        printable(about["reason"]),
        about["last_step"],
        about["row_count"],
        about.get("together"),
    )
    return run, rows


def _fault(columns: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """What is wrong with the rows of a run, in words; empty where nothing is."""
    count = about["row_count"]
    for name in ROW_COLUMNS:
        if type(columns[name]) is not list or len(columns[name]) != count or not count:
            size = len(columns[name]) if type(columns[name]) is list else "no"
            return f"has {size} values of {name}, row_count is {count}"
        check = ROW_CHECKS[name]
        if wrong := next(filter(None, map(check, columns[name])), ""):
            return f"{name} {wrong}"
    if not all(0 <= wrong <= seen for wrong, seen in zip(columns["wrong"], columns["seen"], strict=True)):
        return "counts more images wrong than seen, or fewer than none"
    if max(columns["step"]) != about["last_step"]:
        return f"last_step is {about['last_step']}, its last row is of step {max(columns['step'])}"
    keys = set(zip(columns["step"], columns["env"], columns["subset"], strict=True))
    return "" if len(keys) == count else f"has {count - len(keys)} rows twice"


SUFFIX = ".jsonl.xz"
ENTRY_FILE = "entry.yaml"  #: in the folder of an entry: what it is
ROWS = f"rows{SUFFIX}"  #: beside it: its packed runs


def archives_in(folder: Path) -> tuple[list[Path], list[Problem]]:
    """The packed files that lie in a folder, then those of entries in it that are not frozen.

    Args:
        folder: a folder with packed files, an entry, or an archive of entries such as ``results``.

    Returns:
        the files; and a problem for each frozen entry, which is read only where it is named itself.
    """
    files, problems = sorted(folder.glob(f"*{SUFFIX}")), []
    for entry in sorted(folder.glob(f"*/{ENTRY_FILE}")):
        if why := frozen_reason(entry):
            problems.append(Problem("frozen entry", printable(entry.parent), f"{why}; name its folder to read it"))
        else:
            files.append(entry.parent / ROWS)
    return files, problems


def frozen_reason(entry: Path) -> str:
    """What ``frozen:`` says in an ``entry.yaml``; empty where it says nothing or cannot be read."""
    try:
        content = yaml.safe_load(read_regular(entry))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    found = content.get("frozen") if isinstance(content, dict) else None
    return printable(" ".join(str(found).split())) if found else ""

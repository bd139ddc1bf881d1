"""Finds run folders and reads their rows into one compact table. Whatever cannot be used is named, never dropped."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.errors import RecordError
from dgbench.records import ROW_FILE, RunIdentity, read_rows
from dgbench.reports.archive import archives, read_archive
from dgbench.reports.folders import Problem, RunFolder, find_runs
from dgbench.reports.repetitions import fold_splits
from dgbench.reports.run import ROW_COLUMNS, Columns, Run

if TYPE_CHECKING:
    import pandas as pd

IDENTITY_KEYS = tuple(RunIdentity.__dataclass_fields__)


@dataclass(frozen=True)
class Collection:
    """All rows under some roots.

    ``rows`` has one line per row: ``run`` (position in ``runs``), ``step``, ``env``, ``subset``, ``env_held_out``,
    ``seen``, ``wrong``, ``loss``, in the order they were written.
    """

    runs: list[Run]
    rows: pd.DataFrame
    problems: list[Problem]
    without_rows: list[RunFolder]  #: run folders that say nothing but their status


def collect(roots: Iterable[str | Path]) -> Collection:
    """Read every run folder under ``roots``, recursively, and the archives of runs that are or lie in a root.

    Raises:
        RecordError: there is not one run, or a file is no archive.
    """
    import numpy as np
    import pandas as pd

    places = [Path(root) for root in roots]
    found = [item for place in places for file in archives(place) for item in read_archive(file)]
    folders, problems = find_runs([place for place in places if not place.is_file()])
    if not (found or folders):
        where = ", ".join(map(str, places)) or "an empty list of folders"
        raise RecordError(f"no runs under {where}; train some with `python train.py` or name a folder with runs=[DIR]")
    for folder in folders:
        runs, new_problems = _read_folder(folder)
        found += runs
        problems += new_problems
    kept, duplicates = _without_duplicates(found)
    problems += duplicates

    lengths = [run.row_count for run, _ in kept]

    def joined(name: str) -> list[Any]:
        return [value for _, columns in kept for value in columns[name]]

    rows = pd.DataFrame(
        {
            "run": np.repeat(np.arange(len(kept), dtype="int32"), lengths),
            "step": np.array(joined("step"), dtype="int32"),
            "env": pd.Categorical(joined("env")),
            "subset": pd.Categorical(joined("subset")),
            "env_held_out": np.array(joined("env_held_out"), dtype=bool),
            "seen": np.array(joined("seen"), dtype="int32"),
            "wrong": np.array(joined("wrong"), dtype="float64"),
            "loss": np.array(joined("loss"), dtype="float32"),
        }
    )
    told = {run.folder for run, _ in found}
    silent = [folder for folder in folders if str(folder.path) not in told]
    identities = fold_splits([run.identity for run, _ in kept])
    named = [replace(run, identity=identity) for (run, _), identity in zip(kept, identities, strict=True)]
    return Collection(named, rows, problems, silent)


def _read_folder(folder: RunFolder) -> tuple[list[tuple[Run, Columns]], list[Problem]]:
    file = folder.path / ROW_FILE
    try:
        raw, bad_lines = read_rows(file) if file.exists() else ([], [])
    except OSError as error:
        return [], [Problem("unreadable file", str(file), f"{error.strerror}; make it readable")]
    problems = [Problem("dropped line", f"{bad.file}:{bad.line}", bad.reason) for bad in bad_lines]
    by_run: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = defaultdict(dict)
    repeated = 0
    for row in raw:
        if why := _impossible(row):
            problems.append(Problem("dropped row", f"{file} step {row['step']} env {row['env']}", why))
            continue
        members = by_run[row["run"]]
        key = (row["step"], row["env"], row["subset"])
        repeated += key in members
        members[key] = row  # the later line wins: a resumed run writes a step again
    if repeated:
        problems.append(
            Problem("repeated rows", str(file), f"{repeated} rows were written twice; the later ones are used")
        )
    if not by_run:
        why = folder.reason or "no rows yet"
        problems.append(Problem(f"{folder.status.lower()} run without rows", str(folder.path), why))
        return [], problems
    runs = []
    for rows in by_run.values():
        values = list(rows.values())
        identity = {key: values[0][key] for key in IDENTITY_KEYS}
        last = max(row["step"] for row in values)
        run = Run(str(folder.path), identity, folder.status, folder.reason, last, len(values))
        columns = {name: [row[name] for row in values] for name in ROW_COLUMNS}
        for name in ("env", "subset"):  # one string object per name, not one per row
            columns[name] = [sys.intern(value) for value in columns[name]]
        runs.append((run, columns))
        if run.unusable:
            kind = {"FAILED": "failed run", "RUNNING": "still running"}.get(run.status, "no status")
            problems.append(Problem(kind, str(folder.path), run.unusable))
    return runs, problems


def _impossible(row: dict[str, Any]) -> str:
    try:
        if not (row["seen"] > 0 and 0 <= row["wrong"] <= row["seen"]):
            return f"{row['wrong']} wrong of {row['seen']} seen is no error"
        sys.intern(row["env"]), sys.intern(row["subset"]), hash((row["step"] + 0, row["run"]))
    except TypeError:
        return "a value has the wrong type"
    return ""


def _without_duplicates(
    found: list[tuple[Run, Columns]],
) -> tuple[list[tuple[Run, Columns]], list[Problem]]:
    """Keep one folder per member: a finished one, then the longest, then the first by name."""
    problems = []
    for same, why in ((_hash_key, "same run"), (_member_key, "same member under another run hash")):
        groups = defaultdict(list)
        for item in found:
            groups[same(item[0])].append(item)
        found = []
        for group in groups.values():
            group.sort(key=lambda item: (item[0].status != "DONE", -item[0].last_step, item[0].folder))
            found.append(group[0])
            for run, _ in group[1:]:
                problems.append(Problem("duplicate", run.folder, f"{why} as {group[0][0].folder}, which is used"))
    return found, problems


def _hash_key(run: Run) -> str:
    return str(run.identity["run"])


def _member_key(run: Run) -> str:
    return json.dumps({key: value for key, value in run.identity.items() if key != "run"}, sort_keys=True, default=str)

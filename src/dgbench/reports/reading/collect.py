"""Finds run folders and reads their rows into one compact table. Whatever cannot be used is named, never dropped."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.configuration import command_words
from dgbench.errors import RecordError
from dgbench.records.rows import ROW_FILE
from dgbench.records.status import FAILED, INTERRUPTED, RUNNING
from dgbench.reports.reading.archives import read_archives
from dgbench.reports.reading.duplicates import fold_seeds, with_newest_text, without_duplicates
from dgbench.reports.reading.folders import (
    UNREADABLE_FILE,
    Problem,
    RunFolder,
    find_runs,
    nothing_found,
    places,
    printable,
)
from dgbench.reports.reading.row_cache import RowCache
from dgbench.reports.reading.row_files import CODE_SEPARATOR, IDENTITY_KEYS, ROW_COLUMNS, ROW_TYPE, FoundRun, Names, Run

if TYPE_CHECKING:
    import pandas as pd

    from dgbench.reports.reading.duplicates import Record
    from dgbench.reports.reading.row_files import RowArray


__all__ = ["CODE_SEPARATOR", "IDENTITY_KEYS", "Collection", "collect"]

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
_UNUSABLE = {FAILED: "failed run", RUNNING: "still running", INTERRUPTED: "interrupted run"}


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


def collect(roots: str | Path | Iterable[str | Path], cache: bool = False, repeated: bool = False) -> Collection:
    """Read every run folder under ``roots``, recursively, and the archives of runs that are or lie in a root.

    Args:
        roots: folders and archives, or one.
        cache: keep the rows of many runs in a hidden file of the folder that was searched, and read from there those
            that have not changed; see :mod:`dgbench.reports.reading.row_cache`.
        repeated: keep every record of a run, where several folders have it, e.g. of two code versions.

    Raises:
        RecordError: there is not one run, or a file is no archive.
    """
    names, where = Names(), places(roots)
    found, problems = read_archives(where, names)
    folders, more = find_runs([place for place in where if not os.path.isfile(place)])
    problems += more
    if not (found or folders):
        train = " ".join(command_words("train"))
        raise RecordError(
            f"{nothing_found(where, problems)}; train some with `{train}` or name a folder with runs=[DIR]"
        )
    named = {problem.where for problem in problems}
    caches = {root: RowCache(root, names, cache) for root in {folder.root for folder in folders}}
    for folder in folders:
        records, more = _read_folder(folder, caches[folder.root])
        found += records
        problems += [problem for problem in more if problem.kind != UNREADABLE_FILE or problem.where not in named]
    for each in caches.values():
        each.save()
    told = {run.folder for run, _ in found}
    silent = [folder for folder in folders if printable(folder.path) not in told]
    kept, duplicates = (found, []) if repeated else without_duplicates(found, names.listed)
    if not repeated:
        kept, older = with_newest_text(kept)
        duplicates += older
    kept.sort(key=lambda record: _place(record[0].identity))
    identities = fold_seeds([run.identity for run, _ in kept])
    runs = [replace(run, identity=identity) for (run, _), identity in zip(kept, identities, strict=True)]
    return Collection(runs, _frame([rows for _, rows in kept], names.listed), problems + duplicates, silent)


def _place(identity: Mapping[str, Any]) -> list[Any]:
    """Where a run stands among others, whatever its folder is called: by what it is, numbers by their size."""
    names = [name for name in IDENTITY_KEYS if name != "run"]
    text = json.dumps([identity.get(name) for name in names], sort_keys=True, default=str)
    return [part if number % 2 == 0 else float(part) for number, part in enumerate(_NUMBER.split(text))]


def _read_folder(folder: RunFolder, cache: RowCache) -> tuple[list[Record], list[Problem]]:
    where, file = printable(folder.path), folder.path / ROW_FILE
    runs: list[FoundRun] = []
    problems: list[Problem] = []
    try:
        found = cache.read(folder.path)
        runs, problems = found.runs, [fault.in_file(file) for fault in found.faults]
    except FileNotFoundError:
        pass
    except OSError as error:
        problems = [Problem(UNREADABLE_FILE, printable(file), f"{error.strerror}; make it readable")]
    if not runs:
        why = folder.reason or "no rows yet"
        problems.append(Problem(f"{folder.status.lower()} run without rows", where, why))
    records = []
    for each in runs:
        run = Run(where, each.identity, folder.status, folder.reason, each.last_step, len(each.rows), each.together)
        records.append((run, each.rows))
        if run.unusable:
            problems.append(Problem(_UNUSABLE.get(run.status, "no status"), where, run.unusable))
    return records, problems


def _frame(found: Sequence[RowArray], names: Sequence[str]) -> pd.DataFrame:
    """The table of :class:`Collection`."""
    import numpy as np
    import pandas as pd

    rows = np.concatenate([np.empty(0, dtype=ROW_TYPE), *found])
    columns: dict[str, Any] = {"run": np.repeat(np.arange(len(found), dtype="int32"), [len(each) for each in found])}
    for name in ROW_COLUMNS:
        columns[name] = np.ascontiguousarray(rows[name])
    for name in ("env", "subset"):  # categories that occur, in alphabetical order
        occurring = np.flatnonzero(np.bincount(columns[name], minlength=len(names))).tolist()
        ordered = sorted(occurring, key=names.__getitem__)
        places = np.zeros(len(names), dtype="int32")
        places[ordered] = np.arange(len(ordered))
        categories = pd.Index([names[number] for number in ordered])
        columns[name] = pd.Categorical.from_codes(places[columns[name]], categories)
    return pd.DataFrame(columns)


#: ways out where versions would share a table
ADVICE = (
    "split_by=code, name fewer folders with runs=[DIR], or, where no result depends on the change, declare them the "
    "same with same_code=[...]"
)


def code_parts(code: object) -> list[str]:
    """The code versions of a run; several where it was resumed with other code."""
    return str(code).split(CODE_SEPARATOR)


def with_same_code(collection: Collection, versions: Sequence[str]) -> Collection:
    """The collection with one code version for runs of any of these, a name that lists them all.

    Raises:
        RecordError: no run is of one of them.
    """
    of = [set(code_parts(run.identity["code"])) for run in collection.runs]
    present = sorted(set().union(*of))
    if absent := [version for version in versions if version not in present]:
        raise RecordError(f"same_code names {', '.join(absent)}, but the runs are of {', '.join(present)}; name these")
    together = CODE_SEPARATOR.join(sorted(versions))
    runs = [
        replace(run, identity={**run.identity, "code": together}) if own <= set(versions) else run
        for run, own in zip(collection.runs, of, strict=True)
    ]
    return replace(collection, runs=runs)

"""Find run folders, and read their rows into one compact table.

Whatever cannot be used is named, never dropped. One record of each run is used; this module decides
which of several, whether they agree, which text of a user's own module counts, and which runs are
repetitions.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgbench.configuration import command_words
from dgbench.errors import RecordError
from dgbench.phases import tracked
from dgbench.records.checks import shown
from dgbench.records.evaluations import RowKey
from dgbench.records.files import read_json
from dgbench.records.rows import IDENTITY_FILE, ROW_FILE
from dgbench.records.run_identity import DEFAULTS, Role, identity_key, identity_keys, keys
from dgbench.records.status import (
    DONE,
    FAILED,
    INTERRUPTED,
    RUNNING,
    STOPPED,
    lacking_rows,
    trained_again,
)
from dgbench.reports.reading.archived_runs import read_archive
from dgbench.reports.reading.folders import (
    UNREADABLE_FILE,
    Problem,
    RunFolder,
    archives_in,
    find_runs,
    fold_of,
    nothing_found,
    places,
    printable,
)
from dgbench.reports.reading.row_cache import RowCache
from dgbench.reports.reading.row_files import (
    BY_SEED,
    CODE_SEPARATOR,
    IDENTITY_KEYS,
    ROW_COLUMNS,
    ROW_TYPE,
    SEEDED,
    Names,
    Run,
    differing,
)

if TYPE_CHECKING:
    import pandas as pd

    from dgbench.reports.published import Published
    from dgbench.reports.reading.row_files import Record, RowArray

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
_UNUSABLE = {
    FAILED: "failed run",
    RUNNING: "still running",
    INTERRUPTED: "interrupted run",
    DONE: "run that lacks rows",
}


@dataclass(frozen=True)
class Collection:
    """All rows under some roots.

    ``rows`` has one line per row: ``run`` (position in ``runs``), ``step``, ``env``, ``subset``,
    ``env_held_out``, ``seen``, ``wrong``, ``loss``, in the order they were written.
    """

    runs: list[Run]
    rows: pd.DataFrame
    problems: list[Problem]
    without_rows: list[RunFolder]  #: run folders that say nothing but their status
    published: Sequence[Published] = ()  #: of means with standard errors, which are no runs
    #: the results are of one step that others chose, without saying how
    selected_elsewhere: bool = False
    #: there are draws of hyperparameters, and no validation accuracy to choose among them by
    draws_stay_apart: bool = False

    def without_numbers(self) -> Collection:
        """Return the collection without its rows, whose memory is free once this one is dropped.

        Rows of tens of thousands of runs take tens of MB, and are not read after a selection.
        """
        return replace(self, rows=self.rows.head(0).copy())


def collect(
    roots: str | Path | Iterable[str | Path], cache: bool = False, repeated: bool = False
) -> Collection:
    """Read every run folder under ``roots``, recursively, and the archives of runs that are roots
    or lie in one.

    Args:
        roots: folders and archives, or one.
        cache: keep the rows of many runs in a hidden file of the folder that was searched, and read
            from there those that have not changed; see :mod:`dgbench.reports.reading.row_cache`.
        repeated: keep every record of a run, where several folders have it, e.g. of two code
            versions.

    Raises:
        RecordError: there is not one run, or a file is no archive.
    """
    names = Names()
    paths = places(roots)
    records, problems = read_archives(paths, names)
    folders, faults = find_runs([place for place in paths if not os.path.isfile(place)])
    problems += faults
    if not (records or folders):
        train = " ".join(command_words("train"))
        raise RecordError(
            f"{nothing_found(paths, problems)}; train some with `{train}` or name a folder with "
            "runs=[DIR]"
        )
    problems += _stopped_draws(folders, paths)
    records_of_folders, faults = _read_folders(folders, names, cache)
    records += records_of_folders
    named = {problem.where for problem in problems}
    for fault in faults:
        if fault.kind != UNREADABLE_FILE or fault.where not in named:
            problems.append(fault)
    with_rows = {run.folder for run, _ in records}
    without_rows = [
        replace(folder, fold=fold_of(folder))
        for folder in folders
        if printable(folder.path) not in with_rows
    ]
    if not repeated:
        records, duplicates = without_duplicates(records, list(names))
        records, older = with_newest_text(records)
        problems += duplicates + older
    parts: dict[Any, list[Any]] = {}
    records.sort(key=lambda record: _place(record[0].identity, parts))
    identities = fold_seeds([run.identity for run, _ in records])
    runs = [
        run if identity is run.identity else replace(run, identity=identity)
        for (run, _), identity in zip(records, identities, strict=True)
    ]
    return Collection(
        runs, _frame([rows for _, rows in records], list(names)), problems, without_rows
    )


def _stopped_draws(folders: Sequence[RunFolder], paths: Sequence[Path]) -> list[Problem]:
    """Report, as one problem, the draws that a search stopped."""
    stopped = sum(folder.status == STOPPED for folder in folders)
    if not stopped:
        return []
    reason = (
        f"{stopped} ended early, as their search says; hparams=search in the same folder "
        "trains them on"
    )
    return [Problem("draws that were stopped", ", ".join(map(printable, paths)), reason)]


def _read_folders(
    folders: Sequence[RunFolder], names: Names, use_cache: bool
) -> tuple[list[Record], list[Problem]]:
    """Read the runs of all folders with their rows, and what is wrong with them."""
    roots = {folder.root for folder in folders}
    caches = {root: RowCache(root, names, use_cache) for root in roots}
    records: list[Record] = []
    problems: list[Problem] = []
    for folder in tracked(folders, "reading runs", len(folders), "folders"):
        records_of_folder, faults = _read_folder(folder, caches[folder.root])
        records += records_of_folder
        problems += faults
    for cache in caches.values():
        cache.save()
    return records, problems


def read_archives(places: Sequence[Path], names: Names) -> tuple[list[Record], list[Problem]]:
    """Read the runs of all archives that are named, or that lie in a folder that is named
    (:func:`archives_in`).

    Args:
        places: files and folders.
        names: receives the names that rows hold.

    Returns:
        the runs with their rows; and what is left out.

    Raises:
        RecordError: a file that is named is no archive.
    """
    records: list[Record] = []
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
            records += runs
            problems += left_out
    return records, problems


def _place(identity: Mapping[str, Any], parts: dict[Any, list[Any]]) -> list[list[Any]]:
    """Build the sort key of a run: its identity, whatever its hash and folder are called.

    Numbers sort by size.

    Args:
        identity: of the run.
        parts: value -> its part of the key; runs share values (:class:`Names`), and so these.
    """
    place = []
    for name in IDENTITY_KEYS:
        if name == "run":
            continue
        value = identity[name]
        is_shared = isinstance(value, list | dict)
        key = type(value), id(value) if is_shared else value
        if key not in parts:
            pieces: list[Any] = _NUMBER.split(identity_key(identity, [name]))
            pieces[1::2] = map(float, pieces[1::2])
            parts[key] = pieces
        place.append(parts[key])
    return place


def _read_folder(folder: RunFolder, cache: RowCache) -> tuple[list[Record], list[Problem]]:
    path = printable(folder.path)
    file = folder.path / ROW_FILE
    records: list[Record] = []
    problems: list[Problem] = []
    try:
        content = cache.read(folder.path)
        problems = [fault.in_file(file) for fault in content.faults]
        records = [
            (replace(run, folder=path, status=folder.status, reason=folder.reason), rows)
            for run, rows in content.runs
        ]
    except FileNotFoundError:
        pass
    except OSError as error:
        problems = [
            Problem(UNREADABLE_FILE, printable(file), f"{error.strerror}; make it readable")
        ]
    if not records:
        reason = (
            trained_again(lacking_rows(folder.path))
            if folder.status == DONE
            else folder.reason or "no rows yet"
        )
        problems.append(Problem(f"{folder.status.lower()} run without rows", path, reason))
    for run, _ in records:
        if run.unusable and run.status != STOPPED:  # those of a search are one problem
            reason = trained_again(run.lacking) if run.status == DONE else run.unusable
            problems.append(Problem(_UNUSABLE.get(run.status, "no status"), path, reason))
    return records, problems


def _frame(arrays: Sequence[RowArray], names: Sequence[str]) -> pd.DataFrame:
    """Build the table ``rows`` of :class:`Collection`."""
    import numpy as np
    import pandas as pd

    columns: dict[str, Any] = {
        "run": np.repeat(np.arange(len(arrays), dtype="int32"), [len(array) for array in arrays])
    }
    none = np.empty(0, dtype=ROW_TYPE)
    for name in ROW_COLUMNS:  # one by one: all rows together would be there twice
        column = np.concatenate([none[name], *(array[name] for array in arrays)])
        columns[name] = column
        if name in ("env", "subset"):
            occurring = pd.Categorical.from_codes(
                column, pd.Index(names)
            ).remove_unused_categories()
            columns[name] = occurring.reorder_categories(sorted(occurring.categories))
    return pd.DataFrame(columns, copy=False)


def without_duplicates(
    records: list[Record], names: Sequence[str]
) -> tuple[list[Record], list[Problem]]:
    """Keep one record per run: a finished one, then the longest, then the first by name.

    Two records that disagree are a finding: the same run came out differently, as rounding makes it
    where other runs trained beside it, or something worse.

    Args:
        records: all of them.
        names: of environments and subsets, in the order of their numbers.

    Returns:
        The records that are used, and a problem for each that is not: a ``duplicate``, or a
        ``disagreement`` with the size of it.
    """
    problems = []
    # folder of a study, that of the study that is used, reason -> pairs of runs
    duplicates: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    keys_but_run = [key for key in IDENTITY_KEYS if key != "run"]
    for compared_keys, reason in (
        (["run"], "same run"),
        (keys_but_run, "same run under another run hash"),
    ):
        groups = defaultdict(list)
        group_keys = identity_keys([run.identity for run, _ in records], compared_keys)
        for key, record in zip(group_keys, records, strict=True):
            groups[key].append(record)
        records = []
        for group in groups.values():
            group.sort(
                key=lambda record: (
                    record[0].unusable != "",
                    -record[0].last_step,
                    record[0].folder,
                )
            )
            used = group[0]
            copies: list[str] = []
            for other in group[1:]:
                difference = _contradiction(used[0], other[0]) or _difference(used, other, names)
                if difference:
                    text = f"{reason} as {used[0].folder}, which is used; {difference}"
                    problems.append(Problem("disagreement", other[0].folder, text))
                    continue
                copies += [other[0].folder, *other[0].copies]
                study = os.path.dirname(other[0].folder)
                used_study = os.path.dirname(used[0].folder)
                duplicates[study, used_study, reason].append((other[0].folder, used[0].folder))
            if copies:
                used = replace(used[0], copies=(*used[0].copies, *copies)), used[1]
            records.append(used)
    return records, [*problems, *(_duplicate(*place, pairs) for place, pairs in duplicates.items())]


def _duplicate(
    study: str, used_study: str, reason: str, pairs: Sequence[tuple[str, str]]
) -> Problem:
    """Write in one line that runs of a study are those of another, which are used.

    Args:
        study, used_study: folders.
        reason: in what way they are the same.
        pairs: run and the one that is used, folders.
    """
    if len(pairs) == 1:
        other, used = pairs[0]
        return Problem("duplicate", other, f"{reason} as {used}, which is used")
    return Problem(
        "duplicate", study, f"{len(pairs)} of its runs: {reason} as in {used_study}, which are used"
    )


def _contradiction(used: Run, other: Run) -> str:
    """Describe the first key in which the identities of two records of one run differ.

    Returns an empty text if none does.

    A value that is the default may be that of a row older than its key, and an archive holds no
    split where every seed has its own.
    """
    for key, ours in used.identity.items():
        theirs = other.identity[key]
        unknown = DEFAULTS.get(key, BY_SEED)
        if key not in ("run", "code") and ours != theirs and unknown not in (ours, theirs):
            return (
                f"{key} is {shown(ours)} there, {shown(theirs)} here: one of them is not what its "
                "hash says"
            )
    return ""


def _difference(used: Record, other: Record, names: Sequence[str]) -> str:
    """Describe how two records of one run differ where both have an error.

    Returns an empty text if they agree.
    """
    differ, largest = differing(_errors(used[1], names), _errors(other[1], names))
    if not differ:
        return ""
    steps = sorted({step for step, _, _ in differ})
    span = f"step {steps[0]}"
    if len(steps) > 1:
        span = f"{len(steps)} steps from {steps[0]} to {steps[-1]}"
    codes = [record[0].identity["code"] for record in (used, other)]
    other_code = "" if codes[0] == codes[1] else f"; code {codes[0]} there, {codes[1]} here"
    return (
        f"errors differ at {span}, {largest}; {_company(used[0])} there, {_company(other[0])} "
        f"here{other_code}"
    )


def _errors(rows: RowArray, names: Sequence[str]) -> dict[RowKey, float]:
    """Map step, environment and subset -> error in percent."""
    env = [names[number] for number in rows["env"].tolist()]
    subset = [names[number] for number in rows["subset"].tolist()]
    keys = zip(rows["step"].tolist(), env, subset, strict=True)
    return dict(zip(keys, (100 * rows["wrong"] / rows["seen"]).tolist(), strict=True))


def _company(run: Run) -> str:
    if run.together is None:
        return "an unknown number of runs trained together"
    return "it trained alone" if run.together == 1 else f"{run.together} runs trained together"


def with_newest_text(records: list[Record]) -> tuple[list[Record], list[Problem]]:
    """Keep the runs of the newest source of every module of a user's own: an edited objective is
    another one.

    Args:
        records: of different runs.

    Returns:
        The records that count, and one problem for every import path with runs of older texts.
    """
    # import path -> when it last trained, and digest of its text
    newest: dict[str, tuple[float, str]] = {}
    for run, _ in records:
        if run.identity["user_code"]:
            trained = _trained_at(Path(run.folder))
            for path, text in run.identity["user_code"].items():
                newest[path] = max(newest.get(path, (trained, text)), (trained, text))
    counting = []
    older = defaultdict(list)
    for record in records:
        texts = record[0].identity["user_code"]
        outdated = [path for path, text in texts.items() if text != newest[path][1]]
        if outdated:
            older[outdated[0]].append(record[0])
        else:
            counting.append(record)
    problems = []
    for path, runs in older.items():
        texts_before = len({run.identity["user_code"][path] for run in runs})
        counted = (
            f"{len(runs)} run{'s' * (len(runs) != 1)} of {texts_before} older "
            f"text{'s' * (texts_before != 1)} of it"
        )
        reason = (
            f"{counted}, e.g. {runs[0].folder}: those of the text {newest[path][1]}, trained "
            "last, count"
        )
        problems.append(Problem("older code", path, reason))
    return counting, problems


def _trained_at(folder: Path) -> float:
    """Find when a run last started, else when its rows changed, in s since 1970.

    Without a folder, as in archives, it is 0.
    """
    try:
        started = read_json(folder / IDENTITY_FILE)["sessions"][-1]["time"]
        return datetime.fromisoformat(started).timestamp()
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        pass
    try:
        return (folder / ROW_FILE).stat().st_mtime
    except OSError:
        return 0.0


def fold_seeds(identities: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Set ``data_seed`` and ``split_seed`` of copies of identities to :data:`BY_SEED` where every
    seed has its own.

    A trial of DomainBed draws its own data and split, so runs that differ in them are repetitions
    there, and must share a table. Where one seed of a setting occurs with several, they stay apart:
    they are no repetitions.
    """
    folded = list(identities)
    shared = keys(Role.DATASET | Role.FORM | Role.NETWORK | Role.PROTOCOL)
    for name in SEEDED:
        values: dict[tuple[str, ...], dict[int, set[Any]]] = defaultdict(lambda: defaultdict(set))
        settings = identity_keys(folded, shared)
        for setting, identity in zip(settings, folded, strict=True):
            values[setting][identity["seed"]].add(identity[name])
        by_seed = {setting for setting, seeds in values.items() if _one_for_each(seeds)}
        for index, setting in enumerate(settings):
            if setting in by_seed:
                folded[index] = {**folded[index], name: BY_SEED}
        shared = (*shared, name)  # splits of different data are no repetitions
    return folded


def _one_for_each(values_of_seeds: Mapping[int, set[Any]]) -> bool:
    """Return whether each seed has one value, and not all have the same."""
    is_one_each = all(len(values) == 1 for values in values_of_seeds.values())
    return is_one_each and len(set().union(*values_of_seeds.values())) > 1


#: ways out where versions would share a table
ADVICE = (
    "split_by=code, name fewer folders with runs=[DIR], or, where no result depends on the "
    "change, declare them the same with same_code=[...]"
)


def code_parts(code: object) -> list[str]:
    """Split the code version of a run into its parts: several if other code resumed it."""
    return str(code).split(CODE_SEPARATOR)


def with_same_code(collection: Collection, versions: Sequence[str]) -> Collection:
    """Give the runs of any of these code versions one version in common, a name that lists them
    all.

    Raises:
        RecordError: no run has one of these versions.
    """
    codes_of_runs = [set(code_parts(run.identity["code"])) for run in collection.runs]
    present = sorted(set().union(*codes_of_runs))
    absent = [version for version in versions if version not in present]
    if absent:
        raise RecordError(
            f"same_code names {', '.join(absent)}, but the runs are of {', '.join(present)}; name "
            "these"
        )
    together = CODE_SEPARATOR.join(sorted(versions))
    runs = []
    for run, parts in zip(collection.runs, codes_of_runs, strict=True):
        if parts <= set(versions):
            run = replace(run, identity={**run.identity, "code": together})
        runs.append(run)
    return replace(collection, runs=runs)

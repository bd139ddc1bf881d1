"""Checks entries of the archive, and computes everything that they say again from their rows."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dgbench.errors import DgbenchError, RecordError
from dgbench.records.files import read_regular
from dgbench.records.rows import DEFAULTS, shown
from dgbench.records.spec import DIRTY, PARTS, RunSpec, canonical
from dgbench.records.spec import digest as hash_of
from dgbench.records.status import DONE
from dgbench.reports.archive.entries import (
    ABOUT,
    BLANK,
    FILES,
    LARGEST,
    NAME,
    Entry,
    PackedRun,
    each_line,
    entry_folders,
    entry_or_faults,
    evaluated,
    missing_of,
    odd_files,
    read_table,
    recorded_of,
    tables_of,
)
from dgbench.reports.archive.index import INDEX_FILES, stale_files
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.render.formats import active_markup

BY_HAND = ("CONTRIBUTING.md",)  #: files of the archive that nothing generates
LAST_DECIMAL = 1.5e-6  # of a table, which another machine may round differently


def check_archive(results: Path, only: str = "") -> list[str]:
    """List everything that is wrong with an archive, or with one entry of it.

    Raises:
        RecordError: there is no such folder, or no such entry in it.
    """
    folders = entry_folders(results)
    if only and only not in (names := [folder.name for folder in folders]):
        raise RecordError(f"{results} has no entry {only}; it has {', '.join(names)}")
    checked = [folder for folder in folders if only in ("", folder.name)]
    faults = [f"{folder.name}: {fault}" for folder in checked for fault in check_entry(folder)]
    return faults if only else faults + [f"{results.name}: {fault}" for fault in _between(results, folders)]


def check_entry(folder: Path) -> list[str]:
    """List everything that is wrong with one entry, one line each."""
    entry, faults = entry_or_faults(folder)
    faults = [*_of_files(folder), *faults]
    if entry is None:
        return faults
    try:
        collection = collect(entry.rows, repeated=True)
        if collection.problems:  # rows that no table takes
            return faults + [f"{problem.kind} {problem.where}: {problem.reason}" for problem in collection.problems]
        lacking = [run for run in collection.runs if run.status == DONE and run.lacking]
        faults += [f"run {run.identity['run']}: {run.unusable}" for run in lacking]
        faults += [*_of_runs(entry, list(each_line(entry.rows)))]
        faults += [*_of_numbers(entry, collection)]
    except (DgbenchError, OSError) as error:
        faults.append(str(error))
    return faults


def _of_files(folder: Path) -> Iterator[str]:
    if not NAME.fullmatch(folder.name):
        yield f"its name is {folder.name}; take lowercase letters, digits and _"
    present = {path.name for path in folder.iterdir()}
    for name in sorted(present ^ set(FILES)):
        yield f"{name} is no file of an entry; remove it" if name in present else f"{name} is missing"
    text = read_regular(folder / ABOUT).decode(errors="replace") if ABOUT in present and not odd_files(folder) else ""
    if BLANK in text:
        yield f"{ABOUT} is not filled in: replace {BLANK}"
    for markup in active_markup(text):
        yield f"{ABOUT} holds {shown(markup)}; write no HTML, and links that are relative, https: or mailto:"


def _of_runs(entry: Entry, lines: Sequence[PackedRun]) -> Iterator[str]:
    """What contradicts itself in a packed run, in all of them together, or in what ``entry.yaml`` says of them."""
    for line in lines:
        who = "run {run} ({algorithm} seed {seed} fold {fold})".format_map(line.identity)
        yield from (f"{who}: {fault}" for fault in _of_run(line, bool(entry.frozen)))
    for (run, _), count in Counter((line.identity["run"], line.identity["code"]) for line in lines).items():
        if count > 1:
            yield f"run {run} is there {count} times"
    for base in {line.identity["base"] for line in lines} - entry.obtained.keys():
        yield f"obtained does not say how {base} was obtained"
    for key, value in recorded_of(lines).model_dump().items():  # what runs do not say may be typed in
        if value not in (written := getattr(entry.recorded, key), [], {}, 0):
            yield f"recorded.{key} is {json.dumps(written)}, its runs say {json.dumps(value)}"


def _of_run(line: PackedRun, frozen: bool) -> Iterator[str]:
    """The hash of a run, computed again, and its rows against its specification, which frozen entries may lack."""
    identity, spec = line.identity, line.spec
    if DIRTY in identity["code"]:
        yield f"its code {identity['code']} is in no commit; train from committed code"
    if not frozen and not (spec and line.sessions):
        yield "it lacks a specification or sessions, so nothing says how it was trained"
    if not spec:
        return
    try:
        digest, steps = _digest(spec), spec["training"]["steps"]
        expected = {**spec, **spec["dataset"], **spec["fold"], "averaging": spec["averaging"]["name"]}
        expected |= {"fold": spec["fold"]["name"], "head": (spec.get("head") or {}).get("name", "random")}
        expected |= {"hparams": {**identity["hparams"], **spec["hparams"], "steps": steps}}
        expected |= {"variant": {key: spec["dataset"]["variant"].get(key) for key in identity["variant"]}}
    except (TypeError, KeyError, AttributeError) as error:
        yield f"its specification is none of this code ({type(error).__name__}: {error})"
        return
    if digest != identity["run"]:
        yield f"its specification hashes to {digest}, its hash is {identity['run']}"
    written = {**DEFAULTS, **identity, "hparams": {"steps": steps, **identity["hparams"]}}
    for key in sorted((written.keys() & expected.keys()) - {"tuning", "objective"}):
        if canonical(written[key]) != canonical(expected[key]):
            yield f"its rows and its specification differ in {key}"


def _digest(spec: Mapping[str, Any]) -> str:
    """The hash of a specification, by the rule of the version that wrote it."""
    if "user_code" in spec:
        return RunSpec(**spec).digest
    # Specifications before the key left `sharpness` and `head` out of the hash where they were empty.
    values = {key: value for key, value in spec.items() if value or key not in ("sharpness", "head")}
    return hash_of(values | {part: hash_of(values[part]) for part in PARTS if part in values})


def _of_numbers(entry: Entry, collection: Collection) -> Iterator[str]:
    """Checksums, committed tables and what is missing, against what the rows give."""
    for name, expected in entry.sha256.items():
        if hashlib.sha256(read_regular(entry.folder / name)).hexdigest() != expected:
            yield f"{name} has not the sha256 that entry.yaml says"
    _, evaluation = evaluated(collection, entry.selection)
    for name, computed in tables_of(evaluation, entry.selection).items():
        committed = read_regular(entry.folder / name).decode(errors="replace")
        try:
            yield from (f"{name}: {fault}" for fault in _table_faults(name, committed, computed))
        except RecordError as error:
            yield str(error)
    for lacking in sorted(set(missing_of(evaluation)) ^ set(entry.missing)):
        yield f"missing lists what is there: {lacking}" if lacking in entry.missing else f"missing lacks {lacking}"


def _table_faults(name: str, committed: str, computed: str) -> Iterator[str]:
    """Where a committed table differs from the one that the rows give, cell by cell."""
    ours, theirs = read_table(committed, name), read_table(computed, name)
    if list(ours) != list(theirs) or len(ours) != len(theirs):
        sizes = [f"{len(frame)} lines of {', '.join(map(str, frame))}" for frame in (ours, theirs)]
        yield f"it has {sizes[0]}; its rows give {sizes[1]}"
        return
    numbers = [frame.apply(pd.to_numeric, errors="coerce") for frame in (ours, theirs)]
    differ = (ours != theirs) & ~((numbers[0] - numbers[1]).abs() <= LAST_DECIMAL)
    for line, column in zip(*np.nonzero(differ.to_numpy()), strict=True):
        cells = str(ours.iat[line, column]) or "empty", str(theirs.iat[line, column]) or "nothing"
        yield f"line {line + 2}: {ours.columns[column]} is {cells[0]}, its rows give {cells[1]}"


def _between(results: Path, folders: Sequence[Path]) -> Iterator[str]:
    """What entries say of one another, and what is generated from all of them."""
    entries = {folder.name: entry_or_faults(folder)[0] for folder in folders}
    for name, entry in entries.items():
        older = entries.get(entry.replaces) if entry else None
        if entry and entry.replaces and not (older and older.frozen):
            yield f"{name} replaces {entry.replaces}, which is no entry that says frozen: and why"
    for path in sorted(results.iterdir()):
        if path.name not in {*entries, *INDEX_FILES, *BY_HAND} or (path.is_symlink() and path.name not in entries):
            yield f"{path.name} is no entry (no entry.yaml in it) and no file of the archive; remove it"
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    if size > LARGEST:
        yield f"it is {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f} MB; pack fewer evaluated steps"
    try:
        yield from (f"{path.name} is stale; write it with `dgbench results index`" for path in stale_files(results))
    except (DgbenchError, OSError) as error:
        yield str(error)

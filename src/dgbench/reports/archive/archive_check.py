"""Checks every entry of the archive, and computes everything that it says again from its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.errors import DgbenchError, RecordError
from dgbench.records.files import read_regular
from dgbench.reports.archive.across_runs import faults_across, name_of
from dgbench.reports.archive.archive_entry import (
    ABOUT,
    BLANK,
    FILES,
    LEADERBOARD_FILE,
    MEASURES_FILE,
    NAME,
    Entry,
    entry_folders,
    read_entry,
    read_faults,
)
from dgbench.reports.archive.archive_index import INDEX_FILES, index_files
from dgbench.reports.archive.entry_tables import csv_faults, evaluated, leaderboard_csv, measures_csv, missing_of
from dgbench.reports.archive.packed_runs import read_lines
from dgbench.reports.archive.recorded import recorded_faults, recorded_of
from dgbench.reports.archive.run_checks import run_faults
from dgbench.reports.reading.archives import read_archive
from dgbench.reports.reading.row_files import Names

LARGEST = 3_000_000  #: bytes of the whole archive
BY_HAND = ("CONTRIBUTING.md",)  #: files of the archive that nothing generates


@dataclass(frozen=True)
class Finding:
    """Something that is wrong."""

    entry: str
    what: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.what}"


def check_archive(results: Path, only: str = "") -> list[Finding]:
    """Everything that is wrong with an archive, or with one entry of it.

    Raises:
        RecordError: there is no such folder, or no such entry in it.
    """
    folders = entry_folders(results)
    if not folders:
        raise RecordError(f"{results} holds no entries; name the folder of an archive, such as results")
    if only:
        chosen = [folder for folder in folders if folder.name == only]
        if not chosen:
            raise RecordError(f"{results} has no entry {only}; it has {', '.join(each.name for each in folders)}")
        return [Finding(only, why) for why in check_entry(chosen[0])]
    found = [Finding(folder.name, why) for folder in folders for why in check_entry(folder)]
    return found + [Finding(results.name, why) for why in _between(results, folders)]


def check_entry(folder: Path) -> list[str]:
    """Everything that is wrong with one entry, one line each."""
    faults = [*_of_files(folder), *read_faults(folder)]
    if not all((folder / name).is_file() for name in FILES):
        return faults
    try:
        entry = read_entry(folder)
        lines = read_lines(entry.rows)
        problems = read_archive(entry.rows, Names())[1]
    except (RecordError, OSError) as error:
        return faults or [str(error)]
    faults += _of_checksums(entry)
    if problems:  # rows that no table takes
        return faults + [f"{problem.kind} {problem.where}: {problem.reason}" for problem in problems]
    faults += [f"{name_of(line)}: {why}" for line in lines for why in run_faults(line, bool(entry.frozen))]
    for base in {line["run"]["identity"]["base"] for line in lines} - entry.obtained.keys():
        faults.append(f"obtained does not say how {base} was obtained")
    faults += [*faults_across(lines), *recorded_faults(recorded_of(lines), entry.recorded)]
    return faults + _of_numbers(entry)


def _of_files(folder: Path) -> Iterator[str]:
    if not NAME.fullmatch(folder.name):
        yield f"its name is {folder.name}; take lowercase letters, digits and _"
    present = {path.name for path in folder.iterdir()}
    for name in FILES:
        if name not in present:
            yield f"{name} is missing"
    for name in sorted(present - set(FILES)):
        yield f"{name} is no file of an entry; remove it"
    if ABOUT in present and BLANK in (text := read_regular(folder / ABOUT).decode(errors="replace")):
        yield f"{ABOUT} is not filled in: replace {BLANK} ({text.count(BLANK)} times)"


def _of_checksums(entry: Entry) -> Iterator[str]:
    for name, expected in entry.sha256.items():
        made = hashlib.sha256(read_regular(entry.folder / name)).hexdigest()
        if made != expected:
            yield f"{name} has sha256 {made[:12]}..., entry.yaml says {expected[:12]}..."


def _of_numbers(entry: Entry) -> list[str]:
    """Committed tables, and what is missing, against what the rows give."""
    try:
        _, _, evaluation = evaluated([entry.rows], entry.selection)
        made = {
            MEASURES_FILE: measures_csv(evaluation, entry.selection),
            LEADERBOARD_FILE: leaderboard_csv(evaluation, entry.selection),
        }
    except DgbenchError as error:
        return [str(error)]
    faults = []
    for name, computed in made.items():
        committed = read_regular(entry.folder / name).decode(errors="replace")
        faults += [f"{name}: {why}" for why in csv_faults(committed, computed)]
    lacking = missing_of(evaluation)
    faults += [f"missing does not list: {each}" for each in lacking if each not in entry.missing]
    faults += [f"missing lists what is there: {each}" for each in entry.missing if each not in lacking]
    faults += [f"{p.kind}: {p.where}: {p.reason}" for p in evaluation.problems if p.kind == "environments differ"]
    return faults


def _between(results: Path, folders: Sequence[Path]) -> Iterator[str]:
    """What entries say of one another, and what is generated from all of them."""
    try:
        entries = [read_entry(folder) for folder in folders]
    except RecordError:
        yield "entries that cannot be read: the generated files are not checked"
        return
    by_name = {entry.name: entry for entry in entries}
    for entry in entries:
        if entry.replaces and entry.replaces not in by_name:
            yield f"{entry.name} replaces {entry.replaces}, which is no entry"
        elif entry.replaces and not by_name[entry.replaces].frozen:
            yield f"{entry.name} replaces {entry.replaces}, which does not say frozen: and why"
    known = {*by_name, *INDEX_FILES, *BY_HAND}
    for path in sorted(results.iterdir()):
        if path.name not in known:
            yield f"{path.name} is no entry (no entry.yaml in it) and no file of the archive; remove it"
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    if size > LARGEST:
        yield f"it is {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f} MB; pack fewer evaluated steps"
    try:
        made = index_files(results)
    except (DgbenchError, OSError) as error:
        yield str(error)
        return
    for name, text in made.items():
        file = results / name
        if not file.is_file() or read_regular(file) != text.encode():
            yield f"{name} is stale; write it with `dgbench results index`"

"""The archive as a whole: what is generated from all entries, and the check that computes
everything again.

Generated are the index, the common leaderboard, and the numbers of all as two CSV files. Runs share
a table of ``LEADERBOARD.md`` where reports let them: one dataset setting and one code version; here
also one version of the dataset's files and one selection. The check finds what entries say and
their rows do not give.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.selection import describe
from dgbench.errors import DgbenchError, RecordError
from dgbench.phases import tracked
from dgbench.plan.measures import choose
from dgbench.records.files import read_regular, write_whole
from dgbench.records.rows import DEFAULTS, Role, identity_key, keys, shown
from dgbench.records.spec import DIRTY, PARTS, RunSpec, canonical
from dgbench.records.spec import digest as hash_of
from dgbench.records.status import DONE
from dgbench.reports.archive.entries import (
    ABOUT,
    BLANK,
    FILES,
    LARGEST,
    LEADERBOARD_FILE,
    MEASURES_FILE,
    NAME,
    Entry,
    PackedRun,
    columns_of,
    each_line,
    entry_folders,
    entry_or_faults,
    evaluated,
    missing_of,
    read_entry,
    read_table,
    recorded_of,
    refused_files,
    tables_of,
)
from dgbench.reports.measuring.report import measures_answer, setting_facts
from dgbench.reports.measuring.tables import measure_table
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.selected import beside_trained
from dgbench.reports.render.formats import (
    active_markup,
    csv_text,
    inert,
    markdown_table,
    markdown_text,
)
from dgbench.reports.results import selection_named
from dgbench.reports.tables import Column

INDEX_FILES = ("README.md", "LEADERBOARD.md", "all_measures.csv", "all_leaderboard.csv")
DIGITS = 16  # of a digest in the index

_HEAD = """\
# Leaderboard

Every entry that is not frozen, sorted by worst+gap, lower is better; errors in percent, mean ± standard deviation over
seeds. `dgbench results index` writes this file from the packed rows. A table holds one dataset setting, computed by one
version of dgbench from one version of the dataset's files: numbers of two tables are not to be compared. The same
numbers, seed by seed: [all_measures.csv](all_measures.csv)."""
_SHOWN = ("worst_gap", "average", "ideal")
BY_HAND = ("CONTRIBUTING.md",)  #: files of the archive that nothing generates
#: what a variant says of the files, whose hash is in the specification
OF_FILES = (
    "images",
    "files",
    "features",
)
LAST_DECIMAL = 1.5e-6  # of a table, which another machine may round differently


def write_index(results: Path) -> list[Path]:
    """Write the generated files of an archive.

    Returns:
        those that were missing or outdated; errors as :func:`stale_files`.

    Raises:
        OSError: a file cannot be written.
    """
    stale = stale_files(results)
    for path, text in stale.items():
        write_whole(path, text)
    return list(stale)


def stale_files(results: Path) -> dict[Path, str]:
    """Map each generated file that is missing or outdated to the content that it should have.

    Raises:
        RecordError: an entry cannot be read, or two that are not frozen hold the same run.
    """
    generated = {results / name: text for name, text in index_files(results).items()}
    return {
        path: text
        for path, text in generated.items()
        if not path.is_file() or read_regular(path) != text.encode()
    }


def index_files(results: Path) -> dict[str, str]:
    """Make the generated files, name -> content; errors as :func:`stale_files`."""
    folders = list(entry_folders(results))
    entries = [
        read_entry(folder)
        for folder in tracked(folders, "reading entries", len(folders), "entries")
    ]
    template = files("dgbench.reports.archive").joinpath("readme.md").read_text(encoding="utf-8")
    texts = (
        template.replace("{entries}", "\n".join(_overview(entries))),
        leaderboard_text([entry for entry in entries if not entry.frozen]),
        _joined(entries, MEASURES_FILE),
        _joined(entries, LEADERBOARD_FILE),
    )
    return dict(zip(INDEX_FILES, texts, strict=True))


def _overview(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| entry | what | who | date | runs | hours | license | status | digest |"
    yield "|---|---|---|---|---:|---:|---|---|---|"
    for entry in entries:
        link, status = (
            f"[{entry.name}]({entry.name}/README.md)",
            "frozen" if entry.frozen else "current",
        )
        numbers = str(entry.recorded.runs), f"{entry.recorded.hours:g}"
        cells = entry.title, entry.authors, str(entry.date), *numbers, entry.license, status
        yield "| " + " | ".join([link, *map(markdown_text, cells), _digest(entry)]) + " |"
    newer = {entry.replaces: f" Replaced by {entry.name}." for entry in entries if entry.replaces}
    reasons = {
        entry.name: " ".join(entry.frozen.split()).rstrip(".") for entry in entries if entry.frozen
    }
    frozen = [
        f"- {name}: {inert(reason)}.{newer.get(name, '')}" for name, reason in reasons.items()
    ]
    if frozen:
        yield from ("", "Frozen, no longer in the leaderboard:", "", *frozen)


def _digest(entry: Entry) -> str:
    """Compute hexadecimal digits that change with any byte of any file of an entry."""
    state = hashlib.sha256()
    for name in FILES:
        content = read_regular(entry.folder / name)
        state.update(f"{name} {len(content)}\n".encode() + content)
    return f"`{state.hexdigest()[:DIGITS]}`"


def _joined(entries: Sequence[Entry], name: str) -> str:
    """Join the committed tables of all entries, with whose each one is and whether it is frozen."""
    tables = []
    for entry in entries:
        file = entry.folder / name
        lines = read_table(read_regular(file).decode(errors="replace"), file)
        columns = {
            "entry": entry.name,
            "who": entry.authors,
            "frozen": str(bool(entry.frozen)).lower(),
        }
        tables.append(pd.DataFrame(columns, index=lines.index).join(lines))
    return csv_text(pd.concat(tables, ignore_index=True))


def leaderboard_text(entries: Sequence[Entry]) -> str:
    """Write ``LEADERBOARD.md``.

    Raises:
        RecordError: two entries hold the same run of the same code, or an entry cannot be read.
    """
    explained = [choose().named(name) for name in _SHOWN]
    parts = [_HEAD, "\n".join(f"- {measure.title}: {measure.formula}" for measure in explained)]
    groups: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    holders: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        identities = [line.identity for line in each_line(entry.rows)]
        for run in ((identity["run"], identity["code"]) for identity in identities):
            if (holder := holders.setdefault(run, entry)) is not entry:
                raise RecordError(
                    f"{entry.name} and {holder.name} both hold run {' of code '.join(run)}; "
                    "freeze one"
                )
        contents = sorted({identity.get("content", "") for identity in identities})
        groups[entry.selection, ", ".join(contents), ", ".join(entry.recorded.code)].append(entry)
    together = tracked(sorted(groups.items()), "evaluating entries", len(groups), "groups")
    for (selection, content, _), group in together:
        parts += _group_text(selection, content, group, holders)
    return "\n\n".join(parts if entries else [*parts, "All entries are frozen."]) + "\n"


def _group_text(
    selection: str, content: str, group: Sequence[Entry], holders: dict[tuple[str, str], Entry]
) -> Iterator[str]:
    """Write the tables of entries that are evaluated together, with who made each line."""
    selected, evaluation = evaluated(
        collect([entry.rows for entry in group], repeated=True), selection
    )
    names = keys(Role.SETTING, "code")
    # (setting, algorithm) -> name -> entry
    made_by: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for index, identity in beside_trained([run.identity for run in selected.runs]):
        entry = holders[identity["run"], identity["code"]]
        made_by[identity_key(identity, names), selected.runs[index].label][entry.name] = entry
    for setting in evaluation.settings:
        of_setting = evaluation.of(setting.title)
        code = "" if "code=" in setting.title else f" (code {', '.join(setting.codes)})"
        yield f"## {inert(setting.title + code)}"
        yield from map(inert, measures_answer(of_setting))
        measures = measure_table(of_setting)
        entries = [
            made_by[identity_key(setting.identity, names), name]
            for name in measures.frame["algorithm"]
        ]
        authors = [
            "; ".join(dict.fromkeys(entry.authors for entry in line.values())) for line in entries
        ]
        lines = measures.frame.assign(who=authors, entry=[", ".join(line) for line in entries])
        columns = {
            column.name: column for column in (*measures.columns, Column("who"), Column("entry"))
        }
        shown = tuple(columns[name] for name in ("algorithm", *_SHOWN, "seeds", "who", "entry"))
        title = f"Measures ({describe(selection_named(selection))})"
        yield markdown_table(replace(measures, frame=lines, columns=shown), title=title)
        facts = [*setting_facts(of_setting), ("files of the dataset", content or "not recorded")]
        yield "\n".join(f"- {inert(f'{name}: {value}')}" for name, value in dict(facts).items())


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
    return (
        faults
        if only
        else faults + [f"{results.name}: {fault}" for fault in _archive_faults(results, folders)]
    )


def check_entry(folder: Path) -> list[str]:
    """List everything that is wrong with one entry, one line each."""
    entry, faults = entry_or_faults(folder)
    faults = [*_file_faults(folder), *faults]
    if entry is None:
        return faults
    try:
        collection = collect(entry.rows, repeated=True)
        if collection.problems:  # rows that no table takes
            return faults + [
                f"{problem.kind} {problem.where}: {problem.reason}"
                for problem in collection.problems
            ]
        lacking = [run for run in collection.runs if run.status == DONE and run.lacking]
        faults += [f"run {run.identity['run']}: {run.unusable}" for run in lacking]
        faults += [*_packed_run_faults(entry, list(each_line(entry.rows)))]
        faults += [*_number_faults(entry, collection)]
    except (DgbenchError, OSError) as error:
        faults.append(str(error))
    return faults


def _file_faults(folder: Path) -> Iterator[str]:
    if not NAME.fullmatch(folder.name):
        yield f"its name is {folder.name}; take lowercase letters, digits and _"
    present = {path.name for path in folder.iterdir()}
    for name in sorted(present ^ set(FILES)):
        yield (
            f"{name} is no file of an entry; remove it" if name in present else f"{name} is missing"
        )
    readable = ABOUT in present and not refused_files(folder)
    text = read_regular(folder / ABOUT).decode(errors="replace") if readable else ""
    if BLANK in text:
        yield f"{ABOUT} is not filled in: replace {BLANK}"
    for markup in active_markup(text):
        yield (
            f"{ABOUT} holds {shown(markup)}; write no HTML, and links that are relative, https: "
            "or mailto:"
        )


def _packed_run_faults(entry: Entry, lines: Sequence[PackedRun]) -> Iterator[str]:
    """Find contradictions in each packed run, in all of them together, and in what ``entry.yaml``
    says of them.
    """
    for line in lines:
        label = "run {run} ({algorithm} seed {seed} fold {fold})".format_map(line.identity)
        yield from (f"{label}: {fault}" for fault in _run_faults(line, bool(entry.frozen)))
    for (run, _), count in Counter(
        (line.identity["run"], line.identity["code"]) for line in lines
    ).items():
        if count > 1:
            yield f"run {run} is there {count} times"
    for base in {line.identity["base"] for line in lines} - entry.obtained.keys():
        yield f"obtained does not say how {base} was obtained"
    for key, value in (
        recorded_of(lines).model_dump().items()
    ):  # what runs do not say may be typed in
        if value not in (written := getattr(entry.recorded, key), [], {}, 0):
            yield f"recorded.{key} is {json.dumps(written)}, its runs say {json.dumps(value)}"


def _run_faults(line: PackedRun, frozen: bool) -> Iterator[str]:
    """Check a run's hash, computed again, and its rows against its specification, which frozen
    entries may lack.
    """
    identity, spec = line.identity, line.spec
    if DIRTY in identity["code"]:
        yield f"its code {identity['code']} is in no commit; train from committed code"
    if not frozen and not (spec and line.sessions):
        yield "it lacks a specification or sessions, so nothing says how it was trained"
    if not spec:
        return
    try:
        digest, steps = _hash_of(spec), spec["training"]["steps"]
        expected = {
            **spec,
            **spec["dataset"],
            **spec["fold"],
            "averaging": spec["averaging"]["name"],
        }
        expected |= {
            "fold": spec["fold"]["name"],
            "head": (spec.get("head") or {}).get("name", "random"),
        }
        expected |= {"hparams": {**identity["hparams"], **spec["hparams"], "steps": steps}}
        stated, recorded = spec["dataset"]["variant"], identity["variant"]
        expected |= {
            "variant": {
                key: recorded[key] if key in OF_FILES else stated.get(key) for key in recorded
            }
        }
    except (TypeError, KeyError, AttributeError) as error:
        yield f"its specification is none of this code ({type(error).__name__}: {error})"
        return
    if digest != identity["run"]:
        yield f"its specification hashes to {digest}, its hash is {identity['run']}"
    written = {**DEFAULTS, **identity, "hparams": {"steps": steps, **identity["hparams"]}}
    for key in sorted((written.keys() & expected.keys()) - {"tuning", "objective"}):
        if canonical(written[key]) != canonical(expected[key]):
            yield f"its rows and its specification differ in {key}"


def _hash_of(spec: Mapping[str, Any]) -> str:
    """Compute the hash of a specification, by the rule of the version that wrote it."""
    if "user_code" in spec:
        return RunSpec(**spec).digest
    # Specifications before the key left `sharpness` and `head` out of the hash where they were
    # empty.
    values = {
        key: value for key, value in spec.items() if value or key not in ("sharpness", "head")
    }
    return hash_of(values | {part: hash_of(values[part]) for part in PARTS if part in values})


def _number_faults(entry: Entry, collection: Collection) -> Iterator[str]:
    """Check checksums, committed tables and the list of missing results against what the rows give."""
    for name, expected in entry.sha256.items():
        if hashlib.sha256(read_regular(entry.folder / name)).hexdigest() != expected:
            yield f"{name} has not the sha256 that entry.yaml says"
    _, evaluation = evaluated(collection, entry.selection)
    later = columns_of(evaluation.measures.of_runs)
    for name, computed in tables_of(evaluation, entry.selection).items():
        committed = read_regular(entry.folder / name).decode(errors="replace")
        try:
            faults = _table_faults(name, committed, computed, later)
            yield from (f"{name}: {fault}" for fault in faults)
        except RecordError as error:
            yield str(error)
    for lacking in sorted(set(missing_of(evaluation)) ^ set(entry.missing)):
        yield (
            f"missing lists what is there: {lacking}"
            if lacking in entry.missing
            else f"missing lacks {lacking}"
        )


def _table_faults(name: str, committed: str, computed: str, later: Set[str]) -> Iterator[str]:
    """List where a committed table differs from the one that the rows give, cell by cell.

    Args:
        name: of the file.
        committed: its text.
        computed: the text that the rows give.
        later: columns of measures, which an entry may be older than.
    """
    ours, theirs = read_table(committed, name), read_table(computed, name)
    theirs = theirs[[column for column in theirs if column in ours or column not in later]]
    if list(ours) != list(theirs) or len(ours) != len(theirs):
        sizes = [f"{len(frame)} lines of {', '.join(map(str, frame))}" for frame in (ours, theirs)]
        yield f"it has {sizes[0]}; its rows give {sizes[1]}"
        return
    numbers = [frame.apply(pd.to_numeric, errors="coerce") for frame in (ours, theirs)]
    differ = (ours != theirs) & ~((numbers[0] - numbers[1]).abs() <= LAST_DECIMAL)
    if len(differ) and differ["selection"].all():  # the numbers are of other steps
        packed, asked = (str(frame["selection"].iat[0]) for frame in (ours, theirs))
        yield (
            f"it is of selection {packed}, entry.yaml says {asked}: pack again with --selection "
            f"{asked}"
        )
        return
    for line, column in zip(*np.nonzero(differ.to_numpy()), strict=True):
        cells = str(ours.iat[line, column]) or "empty", str(theirs.iat[line, column]) or "nothing"
        yield f"line {line + 2}: {ours.columns[column]} is {cells[0]}, its rows give {cells[1]}"


def _archive_faults(results: Path, folders: Sequence[Path]) -> Iterator[str]:
    """Check what entries say of one another, the files beside them, and what is generated from all
    of them.
    """
    entries = {folder.name: entry_or_faults(folder)[0] for folder in folders}
    for name, entry in entries.items():
        older = entries.get(entry.replaces) if entry else None
        if entry and entry.replaces and not (older and older.frozen):
            yield f"{name} replaces {entry.replaces}, which is no entry that says frozen: and why"
    for path in sorted(results.iterdir()):
        if path.name not in {*entries, *INDEX_FILES, *BY_HAND} or (
            path.is_symlink() and path.name not in entries
        ):
            yield (
                f"{path.name} is no entry (no entry.yaml in it) and no file of the archive; "
                "remove it"
            )
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    if size > LARGEST:
        yield (
            f"it is {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f} MB; pack fewer evaluated "
            "steps"
        )
    try:
        yield from (
            f"{path.name} is stale; write it with `dgbench results index`"
            for path in stale_files(results)
        )
    except (DgbenchError, OSError) as error:
        yield str(error)

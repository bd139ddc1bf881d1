"""List entries: the pages and CSV files over all of them, and a ``croissant.json`` in each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.errors import RecordError
from dgbench.phases import tracked
from dgbench.records.files import read_regular, write_whole
from dgbench.reports.document import ADAPTED_AT_TEST_TIME
from dgbench.reports.reading.folders import ROWS
from dgbench.reports.render.formats import csv_text, inert, markdown_text
from tools.archive.croissant import CROISSANT, Described, croissant_text
from tools.archive.entries import (
    CHECKSUMMED,
    LEADERBOARD,
    MEASURES,
    Entry,
    digest_of,
    entry_folders,
    read_entry,
    sha256_of,
)
from tools.archive.numbers import is_verified
from tools.archive.packed_runs import read_packed
from tools.archive.tables import read_table, setting_keys, title_of

INDEX_FILES = ("README.md", "LEADERBOARD.md", "all_measures.csv", "all_leaderboard.csv")
INDEX_TEMPLATE = Path(__file__).with_name("index.md")
LEADERBOARD_TEXT = """\
# Leaderboard

Every entry that is not frozen, sorted by worst+gap, lower is better; errors in percent, mean ±
standard deviation over seeds. `python tools/results.py index` writes this file. A table holds one
dataset setting, computed by one version of dgbench from one version of the dataset's files: numbers
of two tables are not to be compared. Which algorithms the seeds tell apart is said by `python
report.py 'runs=[results]' split_by=code`. The same numbers, seed by seed:
[all_measures.csv](all_measures.csv). Verified: when this file was written, the numbers of the entry
were computed again from its rows, and agreed; it does not say that somebody trained them again."""


def write_index(results: Path) -> list[Path]:
    """Write what :func:`stale_files` finds; return the files."""
    stale = stale_files(results)
    for path, text in stale.items():
        write_whole(path, text)
    return list(stale)


def stale_files(results: Path) -> dict[Path, str]:
    """Map each generated file that is missing or outdated to the content that it should have.

    Raises:
        RecordError: an entry cannot be read, or two that are not frozen hold the same run.
    """
    stale = {}
    for name, text in index_files(results).items():
        path = results / name
        if not path.is_file() or read_regular(path) != text.encode():
            stale[path] = text
    return stale


def index_files(results: Path) -> dict[str, str]:
    """Make the generated files, name -> content; errors as :func:`stale_files`."""
    entries = [_readable(folder) for folder in entry_folders(results)]
    template = INDEX_TEMPLATE.read_text(encoding="utf-8")
    texts = (
        template.replace("{entries}", "\n".join(_overview(entries))),
        leaderboard_text([entry for entry in entries if not entry.frozen]),
        _joined(entries, MEASURES),
        _joined(entries, LEADERBOARD),
    )
    files = dict(zip(INDEX_FILES, texts, strict=True))
    for entry in entries:
        files[f"{entry.name}/{CROISSANT}"] = croissant_text(_described(entry))
    return files


def _readable(folder: Path) -> Entry:
    """Read an entry, or name it and its first fault in one line.

    Raises:
        RecordError: something is wrong with it.
    """
    try:
        return read_entry(folder)
    except RecordError as error:
        first, *others = str(error).splitlines()
        more = f", and {len(others)} more faults" if others else ""
        raise RecordError(
            f"{folder.name}: {first}{more}; `python tools/results.py check` lists them"
        ) from None


def _overview(entries: Sequence[Entry]) -> Iterator[str]:
    """Write the table of entries in Markdown, and which are frozen, why, and replaced by which."""
    yield "| entry | what | who | date | runs | license | status | verified | digest |"
    yield "|---|---|---|---|---:|---|---|---|---|"
    for entry in entries:
        cells = (
            entry.title,
            entry.authors,
            str(entry.date),
            str(entry.recorded["runs"]),
            entry.license,
            "frozen" if entry.frozen else "current",
            _yes_or_no(is_verified(entry)),
        )
        link = f"[{entry.name}]({entry.name}/README.md)"
        yield "| " + " | ".join([link, *map(markdown_text, cells), digest_of(entry)]) + " |"
    newer = {entry.replaces: f" Replaced by {entry.name}." for entry in entries if entry.replaces}
    frozen = [entry for entry in entries if entry.frozen]
    if frozen:
        yield "\nFrozen, no longer in the leaderboard:\n"
    for entry in frozen:
        reason = " ".join(entry.frozen.split()).rstrip(".")
        yield f"- {entry.name}: {inert(reason)}.{newer.get(entry.name, '')}"


def _yes_or_no(verified: bool) -> str:
    return "yes" if verified else "no"


def _described(entry: Entry) -> Described:
    """Collect what the Croissant file of an entry says."""
    columns = {}
    for name in (MEASURES, LEADERBOARD):
        table = read_table(entry.folder / name)
        columns[name] = {str(column): _is_numeric(table[column]) for column in table}
    return Described(
        entry.name,
        entry.title,
        " ".join(entry.notes.split()),
        [person.model_dump() for person in entry.who],
        str(entry.date),
        entry.license,
        list(entry.obtained),
        {name: sha256_of(entry.folder / name) for name in CHECKSUMMED},
        columns,
    )


def _is_numeric(cells: pd.Series[Any]) -> bool:
    """Return whether every filled cell of a column is a number, and there is one."""
    filled = cells[cells != ""]
    return bool(len(filled)) and bool(pd.to_numeric(filled, errors="coerce").notna().all())


def _joined(entries: Sequence[Entry], name: str) -> str:
    """Join the committed tables of all entries, with whose each one is and whether it is frozen."""
    tables = []
    for entry in entries:
        lines = read_table(entry.folder / name)
        frozen = str(bool(entry.frozen)).lower()
        about = {"entry": entry.name, "who": entry.authors, "frozen": frozen}
        tables.append(pd.DataFrame(about, index=lines.index).join(lines))
    return csv_text(pd.concat(tables, ignore_index=True))


def leaderboard_text(entries: Sequence[Entry]) -> str:
    """Write ``LEADERBOARD.md`` from the committed tables; errors as :func:`stale_files`."""
    holders: dict[tuple[str, str], str] = {}
    groups: dict[tuple[tuple[str, str], ...], list[dict[str, str]]] = defaultdict(list)
    for entry in tracked(entries, "reading entries", len(entries), "entries"):
        _refuse_held_twice(entry, holders)
        table = read_table(entry.folder / LEADERBOARD)
        verified = _yes_or_no(is_verified(entry))
        files = ("files of the dataset", "; ".join(entry.recorded["datasets"]))
        about = {"who": entry.authors, "entry": entry.name, "verified": verified}
        for line in table.to_dict("records"):
            setting = [(name, line[name]) for name in setting_keys(table) if line[name]]
            groups[*setting, files].append({**line, **about})
    parts = [LEADERBOARD_TEXT]
    if not entries:
        parts = [f"{LEADERBOARD_TEXT}\n\nAll entries are frozen."]
    for setting, lines in groups.items():
        facts = dict(setting)
        parts.append(f"## {inert(title_of(facts))}")
        parts.append("\n".join(_board_lines(lines)))
        if any("adaptation=" in line["algorithm"] for line in lines):
            parts.append(ADAPTED_AT_TEST_TIME)
        parts.append(inert("; ".join(f"{name}: {value}" for name, value in facts.items())))
    return "\n\n".join(parts) + "\n"


def _refuse_held_twice(entry: Entry, holders: dict[tuple[str, str], str]) -> None:
    """Add the runs of an entry to their holders, (run, code) -> name of an entry.

    Raises:
        RecordError: another entry holds one of the runs.
    """
    for packed in read_packed(entry.folder / ROWS):
        identity = packed["run"]["identity"]
        run = identity["run"]
        code = identity["code"]
        holder = holders.setdefault((run, code), entry.name)
        if holder != entry.name:
            raise RecordError(
                f"{entry.name} and {holder} both hold run {run} of code {code}; freeze one"
            )


def _board_lines(lines: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Write a table in Markdown: means over seeds in percent, with who made each line."""
    measures = []
    for name in ("worst_gap", "average", "ideal"):
        if any(line.get(name) for line in lines):
            measures.append(name)
    titles = [f"{name.replace('_', '+')} (%)" for name in measures]
    yield "| " + " | ".join(["algorithm", *titles, "seeds", "who", "entry", "verified"]) + " |"
    yield "| --- |" + " ---: |" * (len(titles) + 1) + " --- | --- | --- |"
    first = measures[0] if measures else "seeds"
    for line in sorted(lines, key=lambda line: float(line[first] or math.inf)):
        levels = [_level(line[name], line[f"{name}_std"]) for name in measures]
        about = [line[name] for name in ("seeds", "who", "entry", "verified")]
        cells = [line["algorithm"], *levels, *about]
        yield "| " + " | ".join(map(markdown_text, cells)) + " |"


def _level(mean: str, deviation: str) -> str:
    """Write ``44.6 ± 0.2``, in percent."""
    if not mean:
        return "-"
    level = f"{100 * float(mean):.1f}"
    return f"{level} ± {100 * float(deviation):.1f}" if deviation else level

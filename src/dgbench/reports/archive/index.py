"""What is generated from all entries: the index, the common leaderboard, and the numbers of all as two CSV files.

Runs share a table of ``LEADERBOARD.md`` where reports let them: one dataset setting and one code version; here also one
version of the dataset's files and one selection.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pandas as pd

from dgbench.analysis import MEASURES, Statistics
from dgbench.analysis.selection import describe
from dgbench.errors import RecordError
from dgbench.records.files import read_regular, write_whole
from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.archive.entries import (
    FILES,
    LEADERBOARD_FILE,
    MEASURES_FILE,
    Entry,
    each_line,
    entry_folders,
    evaluated,
    read_entry,
    read_table,
)
from dgbench.reports.measuring.report import measures_answer, setting_facts
from dgbench.reports.measuring.tables import FORMULAS, measure_table
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import beside_trained
from dgbench.reports.render.formats import csv_text, inert, markdown_table, markdown_text
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


def write_index(results: Path) -> list[Path]:
    """Write the generated files of an archive.

    Returns:
        those that were not as they should be; errors as :func:`stale_files`.

    Raises:
        OSError: a file cannot be written.
    """
    stale = stale_files(results)
    for path, text in stale.items():
        write_whole(path, text)
    return list(stale)


def stale_files(results: Path) -> dict[Path, str]:
    """Find the generated files that are not as they should be, and say how.

    Raises:
        RecordError: an entry cannot be read, or two that are not frozen hold the same run.
    """
    generated = {results / name: text for name, text in index_files(results).items()}
    return {path: text for path, text in generated.items() if not path.is_file() or read_regular(path) != text.encode()}


def index_files(results: Path) -> dict[str, str]:
    """Make the generated files, name -> content; errors as :func:`stale_files`."""
    entries = [read_entry(folder) for folder in entry_folders(results)]
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
        link, status = f"[{entry.name}]({entry.name}/README.md)", "frozen" if entry.frozen else "current"
        numbers = str(entry.recorded.runs), f"{entry.recorded.hours:g}"
        cells = entry.title, entry.authors, str(entry.date), *numbers, entry.license, status
        yield "| " + " | ".join([link, *map(markdown_text, cells), _digest(entry)]) + " |"
    newer = {entry.replaces: f" Replaced by {entry.name}." for entry in entries if entry.replaces}
    frozen = [f"- {e.name}: {inert(' '.join(e.frozen.split()))}.{newer.get(e.name, '')}" for e in entries if e.frozen]
    if frozen:
        yield from ("", "Frozen, no longer in the leaderboard:", "", *frozen)


def _digest(entry: Entry) -> str:
    """Hexadecimal digits that change with any byte of any file of an entry."""
    state = hashlib.sha256()
    for name in FILES:
        content = read_regular(entry.folder / name)
        state.update(f"{name} {len(content)}\n".encode() + content)
    return f"`{state.hexdigest()[:DIGITS]}`"


def _joined(entries: Sequence[Entry], name: str) -> str:
    """The committed table of every entry, with whose it is and whether it is frozen."""
    tables = []
    for entry in entries:
        file = entry.folder / name
        lines = read_table(read_regular(file).decode(errors="replace"), file)
        columns = {"entry": entry.name, "who": entry.authors, "frozen": str(bool(entry.frozen)).lower()}
        tables.append(pd.DataFrame(columns, index=lines.index).join(lines))
    return csv_text(pd.concat(tables, ignore_index=True))


def leaderboard_text(entries: Sequence[Entry]) -> str:
    """Write ``LEADERBOARD.md``.

    Raises:
        RecordError: two entries hold the same run of the same code, or an entry cannot be read.
    """
    parts = [_HEAD, "\n".join(f"- {MEASURES[name]}: {FORMULAS[name]}" for name in _SHOWN)]
    groups: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    holders: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        identities = [line.identity for line in each_line(entry.rows)]
        for run in ((identity["run"], identity["code"]) for identity in identities):
            if (holder := holders.setdefault(run, entry)) is not entry:
                raise RecordError(f"{entry.name} and {holder.name} both hold run {' of code '.join(run)}; freeze one")
        contents = sorted({identity.get("content", "") for identity in identities})
        groups[entry.selection, ", ".join(contents), ", ".join(entry.recorded.code)].append(entry)
    for (selection, content, _), group in sorted(groups.items()):
        parts += _group_text(selection, content, group, holders)
    return "\n\n".join(parts if entries else [*parts, "All entries are frozen."]) + "\n"


def _group_text(
    selection: str, content: str, group: Sequence[Entry], holders: dict[tuple[str, str], Entry]
) -> Iterator[str]:
    """The tables of entries that are evaluated together, with who made each line."""
    selected, evaluation = evaluated(collect([entry.rows for entry in group], repeated=True), selection)
    names = keys(Role.SETTING, "code")
    made_by: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)  # (setting, algorithm) -> name -> entry
    for at, identity in beside_trained([run.identity for run in selected.runs]):
        entry = holders[identity["run"], identity["code"]]
        made_by[identity_key(identity, names), selected.runs[at].label][entry.name] = entry
    for setting in evaluation.settings:
        alone = evaluation.of(setting.title)
        code = "" if "code=" in setting.title else f" (code {', '.join(setting.codes)})"
        yield f"## {inert(setting.title + code)}"
        yield from map(inert, measures_answer(alone, Statistics()))
        measures = measure_table(alone)
        entries = [made_by[identity_key(setting.identity, names), name] for name in measures.frame["algorithm"]]
        authors = ["; ".join(dict.fromkeys(entry.authors for entry in line.values())) for line in entries]
        lines = measures.frame.assign(who=authors, entry=[", ".join(line) for line in entries])
        columns = {column.name: column for column in (*measures.columns, Column("who"), Column("entry"))}
        shown = tuple(columns[name] for name in ("algorithm", *_SHOWN, "seeds", "who", "entry"))
        title = f"Measures ({describe(selection_named(selection))})"
        yield markdown_table(replace(measures, frame=lines, columns=shown), title=title)
        facts = [*setting_facts(alone), ("files of the dataset", content or "not recorded")]
        yield "\n".join(f"- {inert(f'{name}: {value}')}" for name, value in dict(facts).items())

"""What is generated from all entries: the index, the common leaderboard, and the numbers of all as two CSV files."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import pandas as pd

from dgbench.errors import RecordError
from dgbench.records.files import read_regular, write_whole
from dgbench.reports.archive.entries import (
    CODE,
    FILES,
    LEADERBOARD_COLUMNS,
    LEADERBOARD_FILE,
    MEASURE_COLUMNS,
    MEASURES_FILE,
    Entry,
    csv_lines,
    csv_text,
    entry_folders,
    evaluated,
    read_entry,
    read_lines,
    selection_named,
)
from dgbench.reports.frames import Column, look_of, table
from dgbench.reports.kinds.measures_report import setting_facts
from dgbench.reports.reading.collect import Collection
from dgbench.reports.renderers.markdown import markdown_table
from dgbench.reports.settings.answers import measures_answer
from dgbench.reports.settings.apply_selection import Selected
from dgbench.reports.settings.evaluation import SETTING_KEYS, Evaluation, identity_key
from dgbench.reports.settings.foreign_runs import beside_trained
from dgbench.reports.settings.measure_tables import FORMULAS, measure_table
from dgbench.reports.settings.statistics_options import Statistics
from dgbench.selection.methods import describe
from dgbench.statistics import MEASURES

ALL_MEASURES, ALL_LEADERBOARD = "all_measures.csv", "all_leaderboard.csv"
INDEX_FILES = ("README.md", "LEADERBOARD.md", ALL_MEASURES, ALL_LEADERBOARD)
DIGITS = 16  # of a digest in the index


def write_index(results: Path) -> list[Path]:
    """Write the generated files of an archive.

    Returns:
        those that were not as they should be.

    Raises:
        RecordError: an entry cannot be read, or two that are not frozen hold the same run.
        OSError: a file cannot be written.
    """
    changed = []
    for name, text in index_files(results).items():
        path = results / name
        if not path.is_file() or read_regular(path) != text.encode():
            write_whole(path, text)
            changed.append(path)
    return changed


def index_files(results: Path) -> dict[str, str]:
    """Name -> content of the generated files; the arguments and errors of :func:`write_index`."""
    entries = [read_entry(folder) for folder in entry_folders(results)]
    if not entries:
        raise RecordError(f"{results} holds no entries; make one with `dgbench results pack`")
    return {
        "README.md": _index(entries),
        "LEADERBOARD.md": leaderboard_text([entry for entry in entries if not entry.frozen]),
        ALL_MEASURES: _joined(entries, MEASURES_FILE, MEASURE_COLUMNS),
        ALL_LEADERBOARD: _joined(entries, LEADERBOARD_FILE, LEADERBOARD_COLUMNS),
    }


def digest_of(entry: Entry) -> str:
    """Hexadecimal digits that change with any byte of any file of an entry."""
    found = hashlib.sha256()
    for name in FILES:
        content = read_regular(entry.folder / name)
        found.update(f"{name} {len(content)}\n".encode() + content)
    return found.hexdigest()[:DIGITS]


def _index(entries: Sequence[Entry]) -> str:
    template = files("dgbench.reports").joinpath("templates/archive_index.md").read_text(encoding="utf-8")
    return template.replace("{entries}", "\n".join([*index_table(entries), *_frozen(entries)]))


def index_table(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| entry | what | who | date | runs | hours | license | status | digest |"
    yield "|---|---|---|---|---:|---:|---|---|---|"
    for entry in entries:
        cells = [
            f"[{entry.name}]({entry.name}/README.md)",
            entry.title,
            entry.names,
            str(entry.date),
            str(entry.recorded["runs"]),
            f"{entry.recorded['hours']:g}",
            entry.license,
            "frozen" if entry.frozen else "current",
            f"`{digest_of(entry)}`",
        ]
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _frozen(entries: Sequence[Entry]) -> Iterator[str]:
    """Why entries are frozen, and what replaces them."""
    newer = {entry.replaces: f" Replaced by {entry.name}." for entry in entries if entry.replaces}
    lines = [f"- {e.name}: {' '.join(e.frozen.split())}.{newer.get(e.name, '')}" for e in entries if e.frozen]
    if lines:
        yield from ("", "Frozen, no longer in the leaderboard:", "", *lines)


def _joined(entries: Sequence[Entry], name: str, columns: Sequence[str]) -> str:
    """The committed table of every entry, with whose it is and whether it is frozen."""
    lines = []
    for entry in entries:
        own = {"entry": entry.name, "who": entry.names, "frozen": str(bool(entry.frozen)).lower()}
        text = read_regular(entry.folder / name).decode(errors="replace")
        lines += [own | line for line in csv_lines(text)[1]]
    return csv_text(("entry", "who", "frozen", *columns), lines)


# ``LEADERBOARD.md``: all entries that are not frozen, in the tables of the measure report.

_HEAD = """\
# Leaderboard

Every entry that is not frozen, sorted by worst+gap, lower is better; errors in percent, mean ± standard deviation over
seeds. `dgbench results index` writes this file from the packed rows. A table holds one dataset setting, computed by one
version of dgbench from one version of the dataset's files: numbers of two tables are not to be compared. The same
numbers, seed by seed: [all_measures.csv](all_measures.csv)."""
_SHOWN = ("worst_gap", "average", "ideal")
Whose = Mapping[tuple[str, str], Entry]  # (run, code) -> the entry that holds it


def leaderboard_text(entries: Sequence[Entry]) -> str:
    """The whole file.

    Raises:
        RecordError: two entries hold the same run of the same code, or an entry cannot be read.
    """
    parts = [_HEAD, "\n".join(f"- {MEASURES[name]}: {FORMULAS[name]}" for name in _SHOWN)]
    for (selection, content, _), group in sorted(_groups(entries).items()):
        whose = _whose(group)
        collection, selected, evaluation = evaluated([entry.rows for entry in group], selection)
        holders = _holders(evaluation, collection, selected, whose)
        for setting in evaluation.settings:
            own = evaluation.of(setting.title)
            code = "" if "code=" in setting.title else f" (code {', '.join(setting.codes)})"
            parts += [f"## {setting.title}{code}", *measures_answer(own, Statistics())]
            parts.append(
                markdown_table(_table(own, holders), title=f"Measures ({describe(selection_named(selection))})")
            )
            facts = [*setting_facts(own), ("files of the dataset", content or "not recorded")]
            parts.append("\n".join(f"- {name}: {value}" for name, value in dict(facts).items()))
    if not entries:
        parts.append("All entries are frozen.")
    return "\n\n".join(parts) + "\n"


def _groups(entries: Sequence[Entry]) -> dict[tuple[str, str, str], list[Entry]]:
    """Entries by selection, by the hashes of their datasets' files, and by code: each group is evaluated alone."""
    groups: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        contents = {line["run"]["identity"].get("content", "") for line in read_lines(entry.rows)}
        groups[entry.selection, ", ".join(sorted(contents)), ", ".join(entry.recorded["code"])].append(entry)
    return groups


def _whose(entries: Sequence[Entry]) -> dict[tuple[str, str], Entry]:
    found: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        for line in read_lines(entry.rows):
            key = line["run"]["identity"]["run"], line["run"]["identity"]["code"]
            if found.setdefault(key, entry) is not entry:
                raise RecordError(
                    f"{entry.name} and {found[key].name} both hold run {key[0]} of code {key[1]}; freeze one of them"
                )
    return found


def _holders(
    evaluation: Evaluation, collection: Collection, selected: Selected, whose: Whose
) -> dict[tuple[str, str], list[Entry]]:
    """(setting, algorithm as the table names it) -> the entries that its runs are of."""
    keys = (*SETTING_KEYS, CODE)
    titles = {identity_key(setting.identity, keys): setting.title for setting in evaluation.settings}
    found: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for number, identity in beside_trained([run.identity for run in collection.runs]):
        if title := titles.get(identity_key(identity, keys)):
            entry = whose[identity["run"], identity["code"]]
            found[title, selected.labels[number]][entry.name] = entry
    return {key: list(entries.values()) for key, entries in found.items()}


def _table(evaluation: Evaluation, holders: Mapping[tuple[str, str], Sequence[Entry]]) -> pd.DataFrame:
    """The measure table of one setting, with who made each line."""
    (setting,) = evaluation.settings
    frame = measure_table(evaluation)
    look = look_of(frame)
    entries = [holders[setting.title, str(algorithm)] for algorithm in frame["algorithm"]]
    frame["who"] = ["; ".join(dict.fromkeys(entry.names for entry in own)) for own in entries]
    frame["entry"] = [", ".join(entry.name for entry in own) for own in entries]
    known = {column.name: column for column in look.columns}
    columns = [known["algorithm"], *(known[name] for name in _SHOWN), known["seeds"], Column("who"), Column("entry")]
    return table(frame, look.name, look.title, columns, look.notes)

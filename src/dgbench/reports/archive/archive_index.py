"""What is generated from all entries: the index, the common leaderboard, and the numbers of all as two CSV files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from dgbench.errors import RecordError
from dgbench.records.files import read_regular, write_whole
from dgbench.reports.archive.archive_entry import (
    FILES,
    LEADERBOARD_FILE,
    MEASURES_FILE,
    Entry,
    entry_folders,
    read_entry,
)
from dgbench.reports.archive.common_leaderboard import leaderboard_text
from dgbench.reports.archive.entry_tables import LEADERBOARD_COLUMNS, MEASURE_COLUMNS, csv_lines, csv_text

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
    return template.replace("{entries}", "\n".join([*_table(entries), *_frozen(entries)]))


def _table(entries: Sequence[Entry]) -> Iterator[str]:
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

"""Tables in files of others, whatever their format (:mod:`.file_formats`).

A file holds one table or several (sheets, ``tabular``), which are never read one for another. Every
line keeps its place in its file, for messages. Several files are put one below the other.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dgbench.errors import ConfigError, RecordError
from dgbench.reports.importers.file_formats import (
    DOMAINBED_FILE,
    READERS,
    ForeignTable,
    is_table,
    read_file,
)
from dgbench.reports.reading.folders import ASSUMED, Problem, places, printable
from dgbench.validation import shown, some_of

#: what may be told from the file that a line stands in
ORIGINS = ("file", "part")


@dataclass(frozen=True)
class ForeignLines:
    """The lines of all tables, one below the other."""

    tables: Sequence[ForeignTable]
    frame: pd.DataFrame

    def place(self, row: int) -> str:
        """Say where a row of the frame stands; names the file if there are several."""
        ends = np.cumsum([len(table.frame) for table in self.tables])
        number = bisect.bisect_right(ends.tolist(), row)
        table = self.tables[number]
        place = table.place(row - (int(ends[number - 1]) if number else 0))
        return f"{place} of {table.name}" if len(self.tables) > 1 else place


def read_files(
    path: Any,
    problems: list[Problem],
    part: Any = None,
    origins: Mapping[str, str] | None = None,
) -> ForeignLines:
    """Read the lines of all tables that a user named, or that lie in a folder.

    Args:
        path: a file, a folder, or several of them.
        problems: receives what had to be assumed.
        part: name or number, from 1, of the table to read of files that hold several; or a list.
        origins: name of a column -> ``file`` or ``part``, whose name stands in it.

    Raises:
        RecordError: there is none, or one cannot be read.
        ConfigError: a part is unknown.
    """
    if not places(path):
        raise RecordError("no table to import; name a file with import.path=FILE")
    files = [file for place in places(path) for file in _files(place)]
    origins = dict(origins or {})
    tables: list[ForeignTable] = []
    for file in files:
        tables += _chosen(read_file(file, problems), part, "part" in origins.values(), problems)
    if origins:
        tables = _with_origins(tables, origins, problems)
    frames = [table.frame for table in tables]
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    return ForeignLines(tables, frame)


def title_of_files(path: Any) -> str:
    """Name files after themselves: ``others`` for ``others.csv``, a folder by its name."""
    named = [place.resolve() for place in places(path)]
    titles = list(dict.fromkeys(place.name if place.is_dir() else place.stem for place in named))
    return printable(some_of(titles, 2))


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    if next(place.rglob(DOMAINBED_FILE), None):
        raise RecordError(
            f"{printable(place)} holds {DOMAINBED_FILE}, the records of DomainBed; use "
            f"import=domainbed import.path={place}"
        )
    files = sorted(
        file for file in place.rglob("*") if is_table(file) and not file.name.startswith(".")
    )
    if not files:
        raise RecordError(
            f"no file *{', *'.join(READERS)} under {printable(place)}; name a file with "
            "import.path=FILE"
        )
    return files


def _chosen(
    tables: list[ForeignTable], part: Any, all_parts: bool, problems: list[Problem]
) -> list[ForeignTable]:
    """Choose among the tables of a file.

    Raises:
        RecordError: there are several, and nothing says which.
        ConfigError: the part is none of them.
    """
    filled = [table for table in tables if len(table.frame)]
    if part is None:
        if len(filled) < 2 or all_parts:
            return filled or tables
        numbered = [f"{k} {table.part}" for k, table in enumerate(tables, 1) if len(table.frame)]
        named = some_of(numbered, 8)
        raise RecordError(
            f"{tables[0].file} holds {len(filled)} tables ({named}); choose with import.part=NAME "
            "or its number, or, if each is of one dataset, import.dataset_from=part"
        )
    wanted = part if isinstance(part, (list, tuple)) else [part]
    numbers = [_number_of(one, tables) for one in wanted]
    unread = [
        table.part
        for number, table in enumerate(tables)
        if number not in numbers and len(table.frame)
    ]
    if unread:
        text = f"not read: {some_of(unread, 6)}"
        problems.append(Problem(ASSUMED, tables[0].file, text))
    return [tables[number] for number in numbers]


def _number_of(part: Any, tables: Sequence[ForeignTable]) -> int:
    matching = [k for k, table in enumerate(tables) if table.part == str(part)]
    if not matching:  # PACS is enough of "training-domain validation set, PACS" if it is alone
        ends = f", {part}"
        matching = [k for k, table in enumerate(tables) if table.part.endswith(ends)]
    if len(matching) == 1:
        return matching[0]
    if not matching and str(part).isdigit() and 1 <= int(part) <= len(tables):
        return int(part) - 1
    named = some_of([f"{k} {table.part}".strip() for k, table in enumerate(tables, 1)], 30)
    fault = f"is {len(matching)} tables" if matching else "is no table"
    raise ConfigError(f"import.part={shown(part)} {fault} of {tables[0].file}; choose from {named}")


def _with_origins(
    tables: Sequence[ForeignTable], origins: Mapping[str, str], problems: list[Problem]
) -> list[ForeignTable]:
    """Add a column for each key that the name of the file, or of its part, tells.

    Raises:
        ConfigError: a table has such a column, or parts without a name.
    """
    values = {
        "file": _told_apart([Path(table.file).stem for table in tables]),
        "part": _told_apart([table.part for table in tables]),
    }
    labelled = []
    for number, table in enumerate(tables):
        columns: dict[str, str] = {}
        for key, origin in origins.items():
            value = values[origin][number]
            if key in table.frame:
                raise ConfigError(
                    f"import.{key}_from={origin}, but {table.name} has a column {key}; leave one "
                    "out"
                )
            if not value:
                raise ConfigError(
                    f"import.{key}_from={origin}, but {table.file} holds one table, without a "
                    f"name; use import.{key}_from=file"
                )
            columns[key] = value
        frame = table.frame.assign(**columns)
        labelled.append(ForeignTable(table.file, table.part, frame, table.lines))
    for key, origin in origins.items():
        named = some_of(list(dict.fromkeys(values[origin])), 8)
        where = printable(Path(tables[0].file).parent)
        problems.append(Problem(ASSUMED, where, f"{key} from the name of the {origin}: {named}"))
    return labelled


def _told_apart(names: Sequence[str]) -> list[str]:
    """Return names without the words that all of them begin with."""
    shared = _shared_words(sorted(set(names)))
    return [name.removeprefix(shared) for name in names]


def _shared_words(stems: Sequence[str]) -> str:
    """Return the words that all names begin with: ``results-`` of results-a and results-b."""
    if len(stems) < 2:
        return ""
    words = [re.findall(r"[^-_. ]*[-_. ]", stem) for stem in stems]
    shared = []
    for together in zip(*words, strict=False):
        if len(set(together)) > 1:
            break
        shared.append(together[0])
    return "".join(shared)

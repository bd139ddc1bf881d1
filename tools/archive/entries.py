"""An entry of the archive: which files it has, what its ``entry.yaml`` may say, and reading it."""

from __future__ import annotations

import hashlib
import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dgbench.errors import RecordError, reason_of
from dgbench.records.checks import printable_text
from dgbench.records.files import read_regular, read_yaml
from dgbench.reports.reading.folders import ENTRY_FILE, ROWS
from tools.archive.croissant import CROISSANT

MEASURES = "measures.csv"
LEADERBOARD = "leaderboard.csv"
ABOUT = "README.md"
CHECKSUMMED = (ROWS, MEASURES, LEADERBOARD)
FILES = (ENTRY_FILE, ABOUT, *CHECKSUMMED)  #: of every entry
#: files of an entry that ``index`` writes from the others
GENERATED = (CROISSANT,)
LARGEST_ARCHIVE = 5_000_000  #: bytes
BLANK = "???"  #: what a human must still say
NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
License = Literal["CC-BY-4.0", "CC0-1.0", "MIT"]  #: of the rows: anybody may copy and combine them
SelectionName = Literal["last", "train_val", "loo_val"]  #: those that look at no test environment
WRITE = "write it with `python tools/results.py"


def _filled(value: str) -> str:
    if BLANK in value:
        raise ValueError(f"is not filled in: replace {BLANK}")
    if not value.strip():
        raise ValueError("is empty")
    for line in value.splitlines():
        wrong = printable_text(line)
        if wrong:
            raise ValueError(wrong)
    return value


Text = Annotated[str, AfterValidator(_filled)]
OneLine = Annotated[Text, Field(pattern=r"^[^\n]*$")]


class Person(BaseModel):
    """Who made an entry."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: OneLine
    affiliation: OneLine = ""
    url: OneLine = ""


class Entry(BaseModel):
    """What ``entry.yaml`` says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    folder: Path
    title: OneLine
    who: list[Person] = Field(min_length=1)
    date: date
    license: License
    selection: SelectionName  #: which step and draw its numbers are of
    obtained: dict[str, Text] = Field(min_length=1)  #: base images -> how they were obtained
    notes: Text
    missing: list[str]  #: studies that the grid of algorithms and seeds lacks
    recorded: dict[str, Any]  #: see :func:`tools.archive.packed_runs.recorded_of`
    sha256: dict[str, str]  #: of :data:`CHECKSUMMED`
    replaces: Annotated[str, Field(pattern=f"^{NAME.pattern}$")] = ""  #: name of an older entry
    frozen: Text = ""  #: why no table of the archive uses it any more

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.name

    @property
    def authors(self) -> str:
        """Names of those who made it."""
        return ", ".join(person.name for person in self.who)


def entry_folders(results: Path) -> list[Path]:
    """List the folders of an archive that hold an ``entry.yaml``, by name.

    Raises:
        RecordError: there are none.
    """
    folders = sorted(file.parent for file in results.glob(f"*/{ENTRY_FILE}"))
    if not folders:
        raise RecordError(f"{results} holds no entries; name an archive, or {WRITE} pack`")
    return folders


def entry_or_faults(folder: Path) -> tuple[Entry | None, list[str]]:
    """Read the ``entry.yaml`` of a folder, or list what is wrong with it or its files."""
    faults = _file_faults(folder)
    if faults:
        return None, faults
    try:
        return Entry.model_validate({**read_yaml(folder / ENTRY_FILE), "folder": folder}), []
    except ValidationError as error:
        for fault in error.errors():
            key = ".".join(map(str, fault["loc"]))
            faults.append(f"{key}: {fault['msg'].removeprefix('Value error, ')}")
    except (OSError, ValueError, TypeError) as error:
        faults.append(f"{ENTRY_FILE} holds no keys: {reason_of(error)}")
    return None, faults


def _file_faults(folder: Path) -> list[str]:
    """List links and files that are too large: a link might publish any file of a reader."""
    faults = []
    if folder.is_symlink() or not folder.is_dir():
        faults.append(f"{folder} is no folder")
    for path in folder.iterdir():
        if path.is_symlink() or not path.is_file():
            faults.append(f"{path.name} is a link or no file; put the file itself there")
        elif path.stat().st_size > LARGEST_ARCHIVE:
            faults.append(f"{path.name} is larger than {LARGEST_ARCHIVE / 1e6:.0f} MB")
    return faults


def read_entry(folder: Path) -> Entry:
    """Read the ``entry.yaml`` of a folder.

    Raises:
        RecordError: something is wrong with it; the message names the first fault.
    """
    entry, faults = entry_or_faults(folder)
    if entry is None:
        raise RecordError(f"{folder.name}: {faults[0]}")
    return entry


def sha256_of(file: Path) -> str:
    """Compute the sha256 of a file, in hexadecimal digits."""
    return hashlib.sha256(read_regular(file)).hexdigest()


def digest_of(entry: Entry) -> str:
    """Compute hexadecimal digits that change with any byte of any file of an entry."""
    state = hashlib.sha256()
    for name in FILES:
        content = read_regular(entry.folder / name)
        state.update(f"{name} {len(content)}\n".encode() + content)
    return f"`{state.hexdigest()[:16]}`"

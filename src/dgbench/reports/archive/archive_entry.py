"""An entry of the archive: its folder, and what its ``entry.yaml`` says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from dgbench.errors import RecordError
from dgbench.records.files import read_regular
from dgbench.records.rows import list_of, mapping_of, printable_text, shown, whole
from dgbench.reports.reading.archive_places import ENTRY_FILE, ROWS

MEASURES_FILE, LEADERBOARD_FILE, ABOUT = "measures.csv", "leaderboard.csv", "README.md"
CHECKSUMMED = (ROWS, MEASURES_FILE, LEADERBOARD_FILE)
FILES = (ENTRY_FILE, ABOUT, *CHECKSUMMED)  #: of every entry; nothing else lies in its folder
BLANK = "???"  #: what a human must still say
LICENSES = ("CC-BY-4.0", "CC0-1.0", "MIT")  #: of the rows: anybody may copy and combine them
SELECTIONS = ("last", "train_val", "loo_val")  #: those that look at no test environment
NAME = re.compile(r"[a-z0-9][a-z0-9_]*")
_PERSON = {"name": True, "affiliation": False, "url": False}  # key -> needed

Check = Callable[[Any], str]


@dataclass(frozen=True)
class Entry:
    """What ``entry.yaml`` says."""

    folder: Path
    title: str
    who: list[dict[str, str]]
    date: date
    license: str  #: of the rows, an SPDX identifier
    selection: str  #: a file of ``conf/selection``: which step and draw its numbers are of
    obtained: dict[str, str]  #: base images or dataset -> how they were obtained
    notes: str
    missing: list[str]  #: studies and folds that the grid of algorithms and seeds lacks
    recorded: dict[str, Any]  #: what the packed runs say of themselves, see ``recorded.py``
    sha256: dict[str, str]  #: of the other files
    replaces: str = ""  #: name of an older entry
    frozen: str = ""  #: why no table of the archive uses it any more
    names: str = field(init=False)  #: of who made it

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", ", ".join(person["name"] for person in self.who))

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def rows(self) -> Path:
        return self.folder / ROWS


def read_entry(folder: Path) -> Entry:
    """The entry in a folder.

    Raises:
        RecordError: :func:`entry_faults` finds something, the first of it.
    """
    content = _content(folder)
    if faults := entry_faults(content):
        raise RecordError(f"{folder / ENTRY_FILE}: {faults[0]}")
    return Entry(folder=folder, **content)


def entry_folders(results: Path) -> list[Path]:
    """Folders of the archive that hold an ``entry.yaml``, by name."""
    return sorted(file.parent for file in results.glob(f"*/{ENTRY_FILE}"))


def read_faults(folder: Path) -> list[str]:
    """What is wrong with the ``entry.yaml`` of a folder, one line each."""
    try:
        return entry_faults(_content(folder))
    except RecordError as error:
        return [str(error)]


def entry_faults(content: Mapping[str, Any]) -> list[str]:
    """What is wrong with what an ``entry.yaml`` says: unknown, missing and ill-typed keys, blanks left."""
    known = _CHECKS.keys()
    faults = [f"key {shown(key)} is unknown; keys are {', '.join(known)}" for key in content if key not in known]
    faults += [f"key {key} is missing" for key in known if key not in content and key not in ("replaces", "frozen")]
    for key, check in _CHECKS.items():
        if key in content:
            blank = key not in ("recorded", "sha256") and BLANK in str(content[key])
            why = f"is not filled in: replace {BLANK}" if blank else check(content[key])
            faults += [f"{key} {why}"] if why else []
    return faults


def _content(folder: Path) -> dict[str, Any]:
    file = folder / ENTRY_FILE
    try:
        content = yaml.safe_load(read_regular(file))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RecordError(f"{file} is no YAML file: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{file} holds no keys; copy {ENTRY_FILE} of another entry and change it")
    return {str(key): value if key == "date" else _plain(value) for key, value in content.items()}


def _plain(value: Any) -> Any:
    """With text for what YAML knows and JSON does not, such as a day where a title should be."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _text(value: Any) -> str:
    """Some text, of any number of lines."""
    if type(value) is not str or not value.strip():
        return "is empty" if type(value) is str else f"is {shown(value)}, not text"
    return next((f"holds a line that {wrong}" for line in value.splitlines() if (wrong := printable_text(line))), "")


def _people(value: Any) -> str:
    if type(value) is not list or not value or not all(type(person) is dict for person in value):
        return "is no list of people, each with a name and perhaps affiliation and url"
    for person in value:
        if odd := [key for key in person if key not in _PERSON]:
            return f"has {shown(odd[0])}, a person has {', '.join(_PERSON)}"
        if wrong := next((f"{key} {why}" for key in person if (why := _text(person[key]))), ""):
            return f"has a person whose {wrong}"
        if "name" not in person:
            return "has a person without a name"
    return ""


def _date(value: Any) -> str:
    return "" if type(value) is date else f"is {shown(str(value))}, not a day such as 2026-11-23"


def _one_of(*choices: str) -> Check:
    return lambda value: "" if value in choices else f"is {shown(value)}, none of {', '.join(choices)}"


def _digests(value: Any) -> str:
    if type(value) is not dict or set(value) != set(CHECKSUMMED):
        return f"does not have one line for each of {', '.join(CHECKSUMMED)}"
    odd = next((k for k, v in value.items() if not re.fullmatch("[0-9a-f]{64}", str(v))), "")
    return f"of {odd} is no sha256 of 64 hexadecimal digits" if odd else ""


def _recorded(value: Any) -> str:
    lists = ("code", "commands", "python", "hardware", "datasets")
    checks: dict[str, Check] = {
        **dict.fromkeys(lists, list_of(printable_text)),
        "packages": mapping_of(list_of(printable_text)),
        "runs": whole(1),
        "studies": whole(1),
        "hours": lambda hours: "" if type(hours) in (int, float) and hours >= 0 else f"is {shown(hours)}, no hours",
    }
    if type(value) is not dict or set(value) != set(checks):
        return f"does not have the keys {', '.join(checks)}; let `dgbench results pack` write it"
    return next((f"{key} {wrong}" for key, check in checks.items() if (wrong := check(value[key]))), "")


_CHECKS: dict[str, Check] = {
    "title": printable_text,
    "who": _people,
    "date": _date,
    "license": _one_of(*LICENSES),
    "selection": _one_of(*SELECTIONS),
    "obtained": lambda value: mapping_of(_text)(value) or ("" if value else "is empty"),
    "notes": _text,
    "missing": list_of(printable_text),
    "replaces": lambda value: "" if NAME.fullmatch(str(value)) else f"is {shown(value)}, no name of an entry",
    "frozen": _text,
    "recorded": _recorded,
    "sha256": _digests,
}

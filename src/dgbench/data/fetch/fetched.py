"""What came with a download, noted in ``data/.fetch/NAME.json``: to see later, or on another machine, what changed.

A note is what :func:`listing` finds of the folder, and the sha256 of each archive. Names and sizes tell what is missing
or cut short, not a changed byte; that no file is read again makes it quick.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from dgbench.data.fetch.sources import Source


class Fetched(NamedTuple):
    """One downloaded file.

    Args:
        sha256: its checksum.
        compared: the published checksum that it was compared with, ``sha256`` or ``md5``; None where none is published.
    """

    sha256: str
    compared: str | None


@dataclass(frozen=True)
class Listing:
    """The files below a folder.

    Args:
        files: how many.
        bytes: of all of them.
        sha256: of their paths and sizes, sorted: one line ``SIZE PATH`` each.
    """

    files: int
    bytes: int
    sha256: str


def listing(folder: Path) -> Listing:
    """The files below a folder by name and size; links are not followed."""
    sizes = {}
    for inside, _, names in os.walk(folder):
        for name in names:
            path = Path(inside, name)
            sizes[path.relative_to(folder).as_posix()] = path.lstat().st_size
    lines = "".join(f"{sizes[name]} {name}\n" for name in sorted(sizes))
    digest = hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
    return Listing(len(sizes), sum(sizes.values()), digest)


def note(source: Source, data: Path, archives: Mapping[str, Fetched]) -> Listing:
    """Write down what came; returns the listing of the dataset's folder."""
    found = listing(data / source.folder)
    content = {"listing": asdict(found), "archives": {name: each._asdict() for name, each in archives.items()}}
    _file(source, data).write_text(json.dumps(content, indent=2) + "\n")
    return found


def noted(source: Source, data: Path) -> tuple[Listing | None, Mapping[str, Fetched]]:
    """What :func:`note` wrote; nothing where it was fetched by hand, or the note cannot be read."""
    try:
        content = json.loads(_file(source, data).read_text())
        archives = {name: Fetched(**each) for name, each in content["archives"].items()}
        return Listing(**content["listing"]), archives
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, {}


def _file(source: Source, data: Path) -> Path:
    return data / ".fetch" / f"{source.name}.json"

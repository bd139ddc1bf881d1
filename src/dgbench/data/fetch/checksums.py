"""Checksums of the files of a downloaded dataset: noted on arrival, compared on reading.

The note of ``data/PACS`` is ``data/.fetch/pacs.sha256``: lines as of ``sha256sum``, which checks
them too, with paths below the folder of datasets. Files without a note, those that a user brought,
are not compared.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from dgbench.errors import DataError
from dgbench.phases import tracked
from dgbench.records.files import open_regular, read_regular, write_whole

NOTES = ".fetch"  #: folder of the notes, in that of datasets
SUFFIX = ".sha256"  #: of a note
DEPTH = 4  #: folders from the one that a dataset reads up to the one that was downloaded
PART_BYTES = 2**20  #: of a file that are read at once
FILES_AT_ONCE = 256  #: whose checksums are computed


class ChangedFile(DataError):
    """A file that is not as it was downloaded."""


@dataclass(frozen=True)
class Checksums:
    """The files of a dataset as they were downloaded."""

    note: Path  #: the file ``.fetch/NAME.sha256``
    digests: Mapping[str, str]  #: path below the folder of datasets -> sha256 in hexadecimal

    @property
    def data(self) -> Path:
        """Return the folder of datasets."""
        return self.note.parent.parent

    def check(self, file: str | Path, opened: BinaryIO) -> None:
        """Compare an open file, and go back to its beginning.

        A file that is not in the note is not read.

        Raises:
            ChangedFile: it was changed.
        """
        if self._noted(file) is None:
            return
        digest = _sha256(opened)
        opened.seek(0)
        self.compare(file, digest)

    def compare(self, file: str | Path, digest: str) -> None:
        """Compare the sha256 of a file.

        Raises:
            ChangedFile: it is another than when the file was downloaded.
        """
        noted = self._noted(file)
        if noted not in (None, digest):
            raise ChangedFile(
                f"{file} was changed since it was downloaded (its sha256 is {digest[:12]}..., not "
                f"{noted:.12}...); dgbench fetch {self.note.stem} --to {self.data} gets such "
                f"files again, or delete {self.note} to take all as they are"
            )

    def _noted(self, file: str | Path) -> str | None:
        return self.digests.get(str(file).removeprefix(f"{self.data}/"))

    def faults(self) -> dict[str, str]:
        """Read all files, and return what is wrong with those missing or changed, by path."""
        title = f"comparing the files of {self.note.stem}"
        total = len(self.digests)
        faults: dict[str, str] = {}
        digests = _digests_of(self.data, list(self.digests))
        for path, digest in tracked(digests, title, total, "files"):
            if digest is None:
                faults[path] = "is missing or cannot be read"
            elif digest != self.digests[path]:
                faults[path] = "was changed since it was downloaded"
        return faults


def write_checksums(note: Path, folder: Path, name: str) -> None:
    """Note the checksums of all files below a folder.

    Args:
        note: the file to write.
        folder: of the files; links are not followed.
        name: of the folder below that of datasets, once it is there.
    """
    paths = sorted(_paths_below(folder))
    digests = tracked(_digests_of(folder, paths), f"checksums of {name}", len(paths), "files")
    lines = [f"{digest}  {name}/{path}\n" for path, digest in digests if digest is not None]
    write_whole(note, "".join(lines).encode("utf-8", "surrogateescape"))


def _paths_below(folder: Path) -> Iterator[str]:
    """List regular files below a folder; a name that does not fit into a line is left out."""
    for subfolder, _, names in os.walk(folder):
        for name in names:
            file = Path(subfolder, name)
            if not file.is_symlink() and not {"\n", "\r", "\\"} & set(name):
                yield file.relative_to(folder).as_posix()


def _digests_of(folder: Path, paths: list[str]) -> Iterator[tuple[str, str | None]]:
    """Pair paths below a folder with the sha256 of the files, None if a file cannot be read."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for first in range(0, len(paths), FILES_AT_ONCE):
            part = paths[first : first + FILES_AT_ONCE]
            digests = pool.map(lambda path: _digest(folder / path), part)
            yield from zip(part, digests, strict=True)


def _digest(file: Path) -> str | None:
    try:
        with open_regular(file) as opened:
            return _sha256(opened)
    except OSError:
        return None


def _sha256(opened: BinaryIO) -> str:
    digest = hashlib.sha256()
    part = opened.read(PART_BYTES)
    while part:
        digest.update(part)
        part = opened.read(PART_BYTES)
    return digest.hexdigest()


def checksums_of(root: Path) -> Checksums | None:
    """Find the checksums of the download that a folder lies in, or is.

    None is returned for a folder that was not downloaded.
    """
    for folder in islice((root, *root.parents), DEPTH):
        notes = folder.parent / NOTES
        for note in sorted(notes.glob(f"*{SUFFIX}")):
            checksums = read_checksums(note)
            first = next(iter(checksums.digests), "") if checksums else ""
            if first.startswith(f"{folder.name}/"):
                return checksums
    return None


def read_checksums(note: Path) -> Checksums | None:
    """Read a note of checksums, or return None if there is none."""
    try:
        stat = note.stat()
        return _read(note, stat.st_size, stat.st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=4)
def _read(note: Path, size: int, changed: int) -> Checksums:
    """Read a note.

    Size and time are arguments so that the cached note holds for an unchanged file only.
    """
    digests: dict[str, str] = {}
    for line in read_regular(note).decode("utf-8", "surrogateescape").split("\n"):
        digest, _, path = line.partition("  ")
        if len(digest) == 64 and path:
            digests[path] = digest
    return Checksums(note, digests)

"""Which files below a folder are pictures, and how many are not: one rule at every depth.

Decodes nothing, imports no torch.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from dgbench.errors import DataError
from dgbench.phases import phase
from dgbench.records.files import open_regular

#: endings that are taken for pictures; whether one can be decoded shows when it is
SUFFIXES = frozenset(
    {
        ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".bmp", ".dib", ".gif", ".webp", ".avif",
        ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".jpx", ".j2c", ".tga",
        ".pcx", ".ico",
    }
)  # fmt: skip
#: endings of other kinds of files, which are not opened; of a file with any further ending the
#: first bytes decide
FOREIGN_ENDINGS = frozenset(
    {
        ".txt", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".html", ".pdf",
        ".py", ".m", ".mat", ".npy", ".npz", ".pkl", ".pt", ".pth", ".h5", ".parquet", ".zip",
        ".gz", ".tar", ".tgz", ".rar", ".7z", ".db", ".log", ".ini", ".mp4", ".avi", ".mov", ".mp3",
        ".wav", ".svg", ".doc", ".docx", ".xls", ".xlsx", ".ipynb",
    }
)  # fmt: skip
#: names that systems and programs leave beside pictures, in lower case; as hidden as those that
#: begin with a dot
SYSTEM_NAMES = frozenset(
    {
        "__macosx",
        "thumbs.db",
        "desktop.ini",
        "@eadir",
        "#recycle",
        "$recycle.bin",
        "lost+found",
        "__pycache__",
    }
)
#: first bytes of JPEG, PNG, GIF, TIFF (either byte order) and JPEG 2000 (file, codestream)
SIGNATURES = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"II*\x00",
    b"MM\x00*",
    b"\x00\x00\x00\x0cjP  ",
    b"\xff\x4f\xff\x51",
)
LONGEST_SIGNATURE = 16  #: bytes that tell a picture

#: why a folder cannot be listed whole
CIRCLE = "linked to a folder that they lie in"
CLOSED = "not readable (Permission denied)"
#: why files are left out
HIDDEN = "hidden"
OTHER = "of other kinds"
WITHOUT_PICTURES = "folders without pictures"

_FIXES = {
    errno.EACCES: "make it readable (chmod -R a+rX)",
    errno.EPERM: "make it readable (chmod -R a+rX)",
    errno.ELOOP: "it is a link that leads back to itself: remove it",
    errno.ENOENT: (
        "it is listed and not there, or a link to nowhere: correct the list or dataset.root"
    ),
}
EXAMPLES = 3  # names of each reason


@dataclass
class LeftOut:
    """Files and folders that are not read: how many, and the first names, by reason."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, paths: Iterable[str]) -> None:
        """Count paths under a reason."""
        names = self.examples.setdefault(reason, [])
        for path in paths:
            self.counts[reason] += 1
            if len(names) < EXAMPLES:
                names.append(path)
            # the first by name, in whatever order the file system lists them
            elif path < names[-1]:
                names[-1] = path
            names.sort()

    def names(self, reason: str) -> str:
        """Join the first names of a reason: ``a/.x, b/.y, c/.z, ...``."""
        dots = ", ..." if self.counts[reason] > EXAMPLES else ""
        return ", ".join(self.examples[reason]) + dots

    def line(self) -> str:
        """Format ``3 hidden (a/.x, b/.y, c/.z), 1 of other kinds (a/notes.txt)``."""
        parts = []
        for reason, count in sorted(self.counts.items()):
            if count:
                parts.append(f"{count:,} {reason} ({self.names(reason)})")
        return ", ".join(parts)


@dataclass
class Folder:
    """A folder below the root."""

    path: str  #: below the root, with forward slashes; empty is the root itself
    pictures: list[str]  #: names of the pictures in it
    folders: list[str]  #: names of the folders in it that are not hidden, sorted


def folders_below(
    root: Path,
    left_out: LeftOut,
    below: str = "",
    enters: Callable[[str], bool] = lambda path: True,
) -> Iterator[Folder]:
    """List a folder and those below it, linked ones too, each before those that it holds.

    Args:
        root: the paths are below it.
        left_out: gets what is not read.
        below: where to begin.
        enters: tells whether the folder of a path is listed.

    Raises:
        DataError: folders that cannot be read, all counted and some named, or that hold a link to a
            folder that they lie in.
    """
    faults = LeftOut()
    with phase(f"listing the images in {root}", None, "images") as progress:
        for folder in _below(root, left_out, below, enters, faults):
            progress.advance(len(folder.pictures))
            yield folder
    for reason, fix in ((CIRCLE, "remove the links"), (CLOSED, _FIXES[errno.EACCES])):
        if faults.counts[reason]:
            raise DataError(
                f"dataset.root={root} cannot be read whole: {faults.counts[reason]:,} {reason} "
                f"({faults.names(reason)}); {fix}"
            )


def _below(
    root: Path, left_out: LeftOut, below: str, enters: Callable[[str], bool], faults: LeftOut
) -> Iterator[Folder]:
    folder = _listed(root, below, left_out, faults)
    yield folder
    for name in folder.folders:
        path = f"{below}/{name}" if below else name
        if enters(path):
            yield from _below(root, left_out, path, enters, faults)


def _listed(root: Path, below: str, left_out: LeftOut, faults: LeftOut) -> Folder:
    """List one folder; what keeps it from being listed whole is added to ``faults``."""
    place = f"{root}/{below}" if below else str(root)
    listed = Folder(below, [], [])
    # counted once the folder is listed, so that its names are sorted once
    skipped: dict[str, list[str]] = {HIDDEN: [], OTHER: []}
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                _sort_entry(entry, listed, skipped, faults)
    except PermissionError as error:
        if not below:
            unreadable(error, Path(place))
        faults.add(CLOSED, [below])
    except OSError as error:
        unreadable(error, Path(place))
    listed.folders.sort()
    for reason, paths in skipped.items():
        if paths:
            left_out.add(reason, paths)
    return listed


def _sort_entry(
    entry: os.DirEntry[str], folder: Folder, skipped: dict[str, list[str]], faults: LeftOut
) -> None:
    """Add an entry of a folder to its pictures, its folders, or what is skipped or a fault."""
    name = entry.name
    path = f"{folder.path}/{name}" if folder.path else name
    if name[0] == "." or name.lower() in SYSTEM_NAMES:
        skipped[HIDDEN].append(path)
    elif entry.is_dir():
        if entry.is_symlink() and _is_circle(Path(entry.path)):
            faults.add(CIRCLE, [path])
        else:
            folder.folders.append(name)
    elif _is_picture(entry):
        folder.pictures.append(name)
    else:
        skipped[OTHER].append(path)


def _is_circle(link: Path) -> bool:
    """Return whether a linked folder is one of those above it, which may themselves be linked."""
    target = link.stat()
    return any(os.path.samestat(target, above.stat()) for above in link.parents)


def _is_picture(entry: os.DirEntry[str]) -> bool:
    ending = os.path.splitext(entry.name)[1].lower()
    return ending in SUFFIXES or (ending not in FOREIGN_ENDINGS and _begins_as_picture(entry.path))


def _begins_as_picture(path: str) -> bool:
    """Return whether a file begins as a JPEG, PNG, GIF, TIFF, WebP, AVIF or JPEG 2000 does."""
    try:
        with open_regular(path) as file:
            head = file.read(LONGEST_SIGNATURE)
    except OSError:  # a pipe, a link to nowhere: no picture by name either
        return False
    riff = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
    avif = head[4:12] in (b"ftypavif", b"ftypavis")
    return riff or avif or head.startswith(SIGNATURES)


def images_below(root: Path, below: str = "", left_out: LeftOut | None = None) -> Iterator[str]:
    """List the pictures in folder ``below`` and its subfolders, by path below ``root``.

    Raises:
        DataError: as of :func:`folders_below`.
    """
    skipped = LeftOut() if left_out is None else left_out
    for folder in folders_below(root, skipped, below):
        prefix = f"{folder.path}/" if folder.path else ""
        for name in folder.pictures:
            yield prefix + name


def unreadable(error: OSError, path: Path) -> NoReturn:
    """Refuse a file or folder that cannot be read, with what to do.

    Raises:
        DataError: always.
    """
    fix = _FIXES.get(error.errno or 0, "check the disk and dataset.root")
    raise DataError(
        f"{error.filename or path} cannot be read ({error.strerror or error}); {fix}"
    ) from error

"""Which folders and image files lie below a folder, or why that cannot be said."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from dgbench.errors import DataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})

_FIXES = {
    errno.EACCES: "make it readable (chmod -R a+rX)",
    errno.EPERM: "make it readable (chmod -R a+rX)",
    errno.ELOOP: "it is a link that leads back to itself: remove it",
    errno.ENOENT: "it is listed and not there, or a link to nowhere: correct the list or dataset.root",
}


def folders_in(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted, without hidden ones.

    Raises:
        DataError: it cannot be read, or holds a link to itself or to a folder that it lies in.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith((".", "__MACOSX")))
    except OSError as error:
        unreadable(error, folder)
    for name in names:
        inside = folder / name
        if inside.is_symlink() and folder.resolve().is_relative_to(inside.resolve()):
            raise DataError(f"{inside} is a link to a folder that it lies in; remove the link")
    return names


def images_below(root: Path, below: str = "") -> Iterator[str]:
    """Paths below ``root`` of the image files in one of its folders and the folders in it; links are not followed.

    Raises:
        DataError: a folder cannot be read.
    """
    for folder, _, files in os.walk(root / below, onerror=lambda error: unreadable(error, root / below)):
        inside = Path(folder).relative_to(root)
        for file in files:
            if os.path.splitext(file)[1].lower() in SUFFIXES and not file.startswith("."):
                yield (inside / file).as_posix()


def unreadable(error: OSError, path: Path) -> NoReturn:
    """Say which file or folder cannot be read, and what to do.

    Raises:
        DataError: always.
    """
    fix = _FIXES.get(error.errno or 0, "check the disk and dataset.root")
    raise DataError(f"{error.filename or path} cannot be read ({error.strerror or error}); {fix}") from error

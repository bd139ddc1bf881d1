"""Unpacking archives.

Nothing that is unpacked leaves the target folder or grows beyond what it declares: ``tarfile``'s
``data`` filter keeps links that stay inside, strips a leading slash instead of refusing it, and
does not count bytes.
"""

from __future__ import annotations

import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from tqdm import tqdm

from dgbench.errors import DataError

CHUNK_BYTES = 1 << 20
#: an archive of images that declares more than this times its own size is no archive of images ...
GROWTH = 100
SMALL_BYTES = 1 << 20  #: ... unless it declares no more than this
#: what a broken archive raises
BROKEN_ERRORS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
)


def extract(archive: Path, target: Path) -> int:
    """Unpack a zip or tar archive (compressed or not) into an empty or new folder.

    Only files and folders are made, with the permissions of the process. ``__MACOSX`` folders are
    left out.

    Returns:
        The number of files.

    Raises:
        DataError: an absolute path, a path that leaves the target, a link, a device, an archive
            that declares far more than its size or more than the disk holds, or one that is cut
            short or corrupt.
    """
    target.mkdir(parents=True, exist_ok=True)
    limit = max(SMALL_BYTES, GROWTH * archive.stat().st_size)
    free = shutil.disk_usage(target).free
    declared = 0
    files = 0
    members = _zip(archive) if _is_zip(archive) else _tar(archive)
    title = f"unpacking {archive.name}"
    try:
        for name, size, source in tqdm(members, desc=title, unit="file", disable=None, leave=False):
            path = _inside(target, name, archive)
            if path is None:
                continue
            if source is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            declared += size
            _check_declared(archive, target, declared, limit, free)
            path.parent.mkdir(parents=True, exist_ok=True)
            with source as opened, path.open("wb") as out:
                _copy(opened, out, size, archive)
            files += 1
    except BROKEN_ERRORS as error:
        raise DataError(
            f"{archive} is cut short or corrupt ({error}); delete it and fetch it again"
        ) from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise DataError(
            f"{archive} has a file and a folder of one name, {error.filename}; do not trust it"
        ) from error
    return files


def _check_declared(archive: Path, target: Path, declared: int, limit: int, free: int) -> None:
    """Refuse an archive that declares more bytes than its limit, or than are free."""
    if declared > limit:
        raise DataError(
            f"{archive} declares over {declared} bytes, {GROWTH} times its size; do not trust it"
        )
    if declared > free:
        raise DataError(
            f"{target} has {free / 1e9:.1f} GB free, {archive.name} unpacks to more; free space"
        )


Member = tuple[str, int, "IO[bytes] | None"]  #: name, declared size, content; None for a folder


def _is_zip(archive: Path) -> bool:
    """Return whether an archive is a zip from its first bytes on.

    ``zipfile`` also accepts a tar with a zip near its end.
    """
    with archive.open("rb") as opened:
        return opened.read(2) == b"PK" and zipfile.is_zipfile(archive)


def _zip(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError(
                    f"{archive} holds a link or device, {info.filename}; do not trust it"
                )
            if info.flag_bits & 1:
                raise DataError(f"{archive} is encrypted; unpack it by hand")
            content = None if info.is_dir() else opened.open(info)
            yield info.filename, info.file_size, content


def _tar(archive: Path) -> Iterator[Member]:
    try:
        opened = tarfile.open(archive, "r:*")  # noqa: SIM115
    except tarfile.ReadError as error:
        raise DataError(
            f"{archive} is no zip or tar archive, or is cut short; delete it and fetch it again"
        ) from error
    with opened:
        for info in opened:
            if not (info.isfile() or info.isdir()):
                raise DataError(f"{archive} holds a link or device, {info.name}; do not trust it")
            yield info.name, info.size, opened.extractfile(info)


def _inside(target: Path, name: str, archive: Path) -> Path | None:
    """Return the path that a member is unpacked to, or None for one that is left out.

    Paths out of the target are refused.
    """
    parts = PurePosixPath(name).parts
    unusual = not name or "\\" in name or "\0" in name
    absolute = name.startswith("/") or ":" in name.split("/")[0]
    if unusual or absolute or ".." in parts:
        raise DataError(
            f"{archive} holds the path {name!r}, which leads out of the folder; do not trust it"
        )
    return None if "__MACOSX" in parts else target.joinpath(*parts)


def _copy(source: IO[bytes], out: IO[bytes], size: int, archive: Path) -> None:
    remaining = size
    while remaining:
        chunk = source.read(min(CHUNK_BYTES, remaining))
        if not chunk:
            break
        out.write(chunk)
        remaining -= len(chunk)
    if remaining or source.read(1):  # the read to the end also makes zipfile check its checksum
        raise DataError(
            f"{archive} holds other sizes than it declares; delete it and fetch it again"
        )

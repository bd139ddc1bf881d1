"""Files that are written whole, and reading that never waits.

A reader of a file that was written whole, also one after a power cut, sees the old content or the new one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

NOT_REGULAR = "not a regular file"
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  # of a directory, on file systems that cannot


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading, if it is an ordinary one: a pipe would wait for a writer, a device may never end.

    Raises:
        OSError: it cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    without_waiting = getattr(os, "O_NONBLOCK", 0)
    handle = open(path, "rb", opener=lambda name, flags: os.open(name, flags | without_waiting))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
        handle.close()
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
    return handle


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The content of an ordinary file; see :func:`open_regular`.

    Raises:
        OSError: it cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    with open_regular(path) as handle:
        return handle.read()


class WholeFile:
    """A file that is written bit by bit and has its name once it is whole.

    There must be one writer at a time, as the holder of a run's lock is.

    Args:
        path: of the file; its folder exists.
        partial: its name until then; by default the same for every process, so that one that was killed leaves no
            more behind than the next one overwrites.
        sync: force it to the disk.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, partial: Path | None = None, sync: bool = True) -> None:
        self.path, self.sync = path, sync
        self._partial = partial or path.with_name(f"{path.name}.partial")
        self.file: BinaryIO = open(self._partial, "wb")  # noqa: SIM115  # open until the last part is written

    def commit(self) -> None:
        """Give it its name.

        Raises:
            OSError: it cannot be written; what had the name before keeps it.
        """
        try:
            if self.sync:  # before the rename, or the new name may come to the disk ahead of its content
                self.file.flush()
                os.fsync(self.file.fileno())
        finally:
            self.file.close()
        os.replace(self._partial, self.path)
        if self.sync:
            _sync_folder(self.path.parent)

    def discard(self) -> None:
        """Leave what had the name before; nothing after :meth:`commit`.

        Raises:
            OSError: the disk is full, which whatever was writing may have said less clearly.
        """
        try:
            self.file.close()
        finally:
            self._partial.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes, sync: bool = True) -> None:
    """Replace a file atomically, whoever else writes it.

    Args:
        path: of the file; its folder exists.
        content: text is written as UTF-8.
        sync: force it to the disk before returning. Without it a power cut may lose the content, or leave the file
            empty: for what is written again within seconds.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    data = content.encode() if isinstance(content, str) else content
    _replace(path, path.with_name(f"{path.name}.{os.getpid()}.partial"), lambda file: file.write(data), sync)


def write_whole_with(path: Path, writer: Callable[[BinaryIO], object]) -> None:
    """:func:`write_whole`, synced, of what a function writes into an open file; for checkpoints.

    There must be one writer at a time, as the holder of a run's lock is: the partial file always has one name, so
    that processes that were killed leave one behind and not one each.

    Args:
        path: of the file; its folder exists.
        writer: is given the open, seekable file.

    Raises:
        OSError: it cannot be written; the old content stays. So it does with whatever else ``writer`` raises.
    """
    _replace(path, path.with_name(f"{path.name}.partial"), writer, sync=True)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append lines to a file in one write and force them to disk.

    A torn last line, left by a crash or a full disk, is cut off first, so lines never run into each other.

    Raises:
        OSError: the file cannot be written; what was there before stays readable.
    """
    text = "".join(line + "\n" for line in lines)
    with open(path, "ab+") as handle:
        size = handle.seek(0, os.SEEK_END)
        if size:
            handle.seek(size - 1)
            if handle.read(1) != b"\n":
                handle.seek(0)
                whole = handle.read()
                handle.truncate(whole.rfind(b"\n") + 1)
        handle.write(text.encode())
        handle.flush()
        os.fsync(handle.fileno())


def _replace(path: Path, partial: Path, writer: Callable[[BinaryIO], object], sync: bool) -> None:
    whole = WholeFile(path, partial, sync)
    try:
        writer(whole.file)
        whole.commit()
    except BaseException:
        whole.discard()
        raise


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)

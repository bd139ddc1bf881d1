"""Files that are written whole, reading without waiting or using too much memory, and checksums.

A reader of a file that was written whole, also one after a power cut, sees the old content or the
new one.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dgbench.errors import RecordError

Writer = Callable[[BinaryIO], object]  #: writes a file's content into the open file

NOT_REGULAR = "not a regular file"
MOST_EXPANSION = 200  #: times its size that a packed file may hold; packed runs hold some 20 times
ALWAYS_ALLOWED = 32_000_000  #: bytes that every packed file may hold
MOST_UNPACKED = 4_000_000_000  #: bytes that no packed file may hold
LARGEST_YAML = 1_000_000  #: bytes; reading takes a second
DEEPEST_YAML = 50  #: lists and mappings inside one another
_PART = 2**20  #: bytes read at once
WHOLE_FILE = 2**63  #: no file has as many bytes
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)  #: of a directory, on file systems that cannot
#: what a damaged ``.npz`` file raises
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    MemoryError,
    NotImplementedError,
    ValueError,
)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading, if it is an ordinary one.

    A pipe would wait for a writer, a device may never end.

    Raises:
        OSError: it cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    handle = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
        handle.close()
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
    return handle


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read the content of an ordinary file; see :func:`open_regular`.

    Raises:
        OSError: it cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    with open_regular(path) as handle:
        return handle.read()


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be made or written, as making it would; make nothing.

    Raises:
        OSError: a file stands in its place or above it, or its owner does not let this user write.
    """
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(existing))


@dataclass(frozen=True)
class Checksum:
    """How many bytes there are, and their CRC-32.

    The latter shows every changed bit, and all but 2**-32 of other damage.
    """

    size: int = 0
    crc32: int = 0

    def __add__(self, more: bytes) -> Checksum:
        return Checksum(self.size + len(more), zlib.crc32(more, self.crc32))

    @staticmethod
    def of_beginning(file: BinaryIO, size: int = WHOLE_FILE) -> Checksum:
        """Compute the checksum of the next ``size`` bytes of an open file, fewer if it ends."""
        return Checksum().with_next(file, size)

    def with_next(self, file: BinaryIO, size: int = WHOLE_FILE) -> Checksum:
        """Add the next ``size`` bytes of an open file, or fewer if it ends."""
        checksum = self
        end = self.size + size
        part = file.read(min(_PART, size))
        while part:
            checksum += part
            part = file.read(min(_PART, end - checksum.size))
        return checksum

    def begins(self, path: Path) -> bool:
        """Return whether a file begins with these bytes.

        One that cannot be read, or is no ordinary one, holds none.
        """
        try:
            with open_regular(path) as file:
                return Checksum.of_beginning(file, self.size) == self
        except OSError:
            return not self.size


def check_expansion(path: str | os.PathLike[str], size: int) -> None:
    """Refuse a packed file that holds so much more than its size that no results can be in it.

    Args:
        path: of the file.
        size: bytes that it holds, as far as is known.

    Raises:
        RecordError: it does.
        OSError: there is no such file.
    """
    check_unpacked(path, os.stat(path).st_size, size)


def check_unpacked(name: str | os.PathLike[str], packed: int, size: int) -> None:
    """Refuse what :func:`check_expansion` refuses, for a file that is in memory already.

    Args:
        name: of the file, for the message.
        packed: its bytes.
        size: bytes that it holds.

    Raises:
        RecordError: these are too many.
    """
    limit = min(MOST_UNPACKED, max(ALWAYS_ALLOWED, MOST_EXPANSION * packed))
    if size > limit:
        raise RecordError(
            f"{name} expands to more than {limit / 1e6:.0f} MB, which is not read; write it anew"
        )


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the arrays of an ``.npz`` file by name.

    Raises:
        RecordError: it expands beyond all measure.
        OSError: it cannot be opened, or is no ordinary file.
        ValueError: it is none, is damaged, or holds Python objects, which are not loaded.
    """
    import numpy as np

    name = "it"
    content = {}
    size = 0
    with open_regular(path) as handle:
        try:
            # what is no archive may be an array, or a pickle
            with zipfile.ZipFile(handle) as archive:
                size = sum(part.file_size for part in archive.infolist())
                check_expansion(path, size)
            with np.load(handle, allow_pickle=False) as arrays:
                for name in arrays.files:
                    content[name] = arrays[name]
        except _DAMAGED as error:
            if isinstance(error, MemoryError) and getattr(error, "_total_size", 0) <= size:
                raise  # no header that claims more than there is
            raise ValueError(f"{name} is damaged, or holds Python objects: {error}") from None
    return content


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read the value that an ordinary JSON file holds.

    Raises:
        OSError: it cannot be opened, or is no ordinary file.
        ValueError: it is no JSON, or nested without end.
    """
    try:
        return json.loads(read_regular(path))
    except RecursionError:
        raise ValueError("nested without end") from None


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Read the plain value that an ordinary YAML file, which anybody may have written, holds.

    Raises:
        OSError: it cannot be opened, or is no ordinary file.
        ValueError: it is no YAML, is too large or too deep, or repeats a part by ``*name``, which a
            few lines can do without end.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with open_regular(path) as handle:
        content = handle.read(LARGEST_YAML + 1)
    if len(content) > LARGEST_YAML:
        raise ValueError(f"more than {LARGEST_YAML / 1e6:.0f} MB")
    depth = 0
    try:
        for event in yaml.parse(content, Loader=loader):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"*{event.anchor} repeats a part; write it out")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST_YAML:
                raise ValueError(f"more than {DEEPEST_YAML} lists and mappings inside one another")
        return yaml.load(content, Loader=loader)
    except ValueError:
        raise
    # for a document that is no YAML, the parser raises whatever its parts raise
    except Exception as error:
        raise ValueError(" ".join(str(error).split())) from None


class WholeFile(io.RawIOBase):
    """A file that is written bit by bit and has its name once it is whole.

    It is open only while :meth:`flush` writes: there may be more such files than a process may
    have open. There must be one writer at a time, as the holder of a run's lock is: the partial
    file always has one name, so a process that was killed leaves no more behind than the next one
    overwrites.

    Args:
        path: of the file; its folder exists.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._waiting: list[bytes] = []
        self._size = 0
        with open(self._partial, "wb", opener=_without_waiting):
            pass  # empty

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Keep bytes until the next :meth:`flush`."""
        self._waiting.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Append what waits to the partial file.

        Raises:
            OSError: it cannot be written.
        """
        if self._waiting:
            with open(self._partial, "ab") as file:
                file.writelines(self._waiting)
            self._waiting = []

    def commit(self, finish: Callable[[BinaryIO], object] | None = None) -> None:
        """Rename the partial file to the name of the file.

        Args:
            finish: is given the open, whole file before it has its name.

        Raises:
            OSError: it cannot be written; what had the name before keeps it.
        """
        self.flush()
        if finish is not None:
            with open(self._partial, "rb+") as file:
                finish(file)
        _rename(self._partial, self.path)

    def discard(self) -> None:
        """Remove the partial file, and leave what had the name before.

        After :meth:`commit` this does nothing.
        """
        self._waiting = []
        self._partial.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes | Writer, sync: bool = True) -> None:
    """Replace a file atomically, whoever else writes it.

    Args:
        path: of the file; its folder exists.
        content: text is written as UTF-8; a function is given the open, seekable file.
        sync: force it to the disk before returning. Without it a power cut may lose the content, or
            leave the file empty: for what is written again within seconds.

    Raises:
        OSError: it cannot be written; the old content stays.
    """
    data = content.encode() if isinstance(content, str) else content

    def write(file: BinaryIO) -> None:
        if callable(data):
            data(file)
        else:
            file.write(data)

    _replace(path, path.with_name(f"{path.name}.{os.getpid()}.partial"), write, sync)


def write_whole_with(path: Path, writer: Writer) -> None:
    """Write a file, synced, from what a function writes into an open file.

    :func:`write_whole` does the same for others.

    There must be one writer at a time, as of a :class:`WholeFile`.

    Args:
        path: of the file; its folder exists.
        writer: is given the open, seekable file.

    Raises:
        OSError: it cannot be written; the old content stays. So it does with whatever else
            ``writer`` raises.
    """
    _replace(path, path.with_name(f"{path.name}.partial"), writer, sync=True)


#: begins a seal, before eight hexadecimal digits; readers of zip look for what comes before it
_SEAL = b"\ndgbench crc32 "


def write_sealed(path: Path, writer: Writer) -> None:
    """Write as :func:`write_whole_with`, with a final seal that tells whether a byte changed since.

    This is for checkpoints.
    """

    def write(file: BinaryIO) -> None:
        writer(file)
        file.seek(0)
        file.write(_SEAL + b"%08x" % Checksum.of_beginning(file).crc32)

    write_whole_with(path, write)


def check_seal(path: Path) -> bool:
    """Return whether a file has a seal; if it has one, check the content by it.

    Raises:
        OSError: it cannot be read, is no ordinary file, or its content is not what was sealed.
    """
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END) - len(_SEAL) - 8
        file.seek(max(0, size))
        seal = file.read()
        if not seal.startswith(_SEAL):
            return False
        file.seek(0)
        if b"%08x" % Checksum.of_beginning(file, size).crc32 != seal[len(_SEAL) :]:
            raise OSError(errno.EIO, "damaged", str(path))
    return True


def keep_beginning(path: Path, size: int) -> None:
    """Cut a file that others append to, or remove it if nothing is kept.

    Raises:
        OSError: it cannot be cut.
    """
    if size:
        os.truncate(path, size)
    else:
        path.unlink(missing_ok=True)


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Append lines to a file in one write and force them to disk.

    A torn last line, left by a crash or a full disk, is cut off first, so lines never run into each
    other.

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


def _replace(path: Path, partial: Path, writer: Writer, sync: bool) -> None:
    try:
        with open(partial, "wb+", opener=_without_waiting) as file:
            writer(file)
        _rename(partial, path, sync)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _rename(partial: Path, path: Path, sync: bool = True) -> None:
    if sync:  # first, or the new name may come to the disk ahead of its content
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
    os.replace(partial, path)
    if sync:
        _sync_folder(path.parent)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe without a reader or a writer is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)

"""Locks on files, which the system frees when their process ends, however it ends.

The file stays behind; what counts is the lock alone, so nothing is ever stale. Locks reach across
the machines of a cluster as far as its file system carries them (docs/how_to/sweeps.md).

A process may train more runs than it may have open files, so it keeps one file locked: that of the
first run it took. The files of the others say so, in three lines: who it is, a word that no other
:class:`RunLocks` has, and the path of the locked file from their folder. The first two stand in the
locked file as well. A run is held where its own file is locked, or where the file that it names is,
by the same word.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from filelock import FileLock, Timeout

from dgbench.records.files import read_regular

LOCK_FILE = "lock"
#: what file systems without locks answer
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)

log = logging.getLogger("dgbench")


class RunLocks:
    """Runs that this process trains; they are freed when the context or the process ends.

    Programs started meanwhile, and children made by ``fork``, hold nothing.
    """

    def __init__(self) -> None:
        self._locked: list[FileLock] = []
        self._first: Path | None = None  # the locked file that others name
        self._word = uuid4().hex

    def take(self, folder: Path) -> bool:
        """Take the run of a folder, which is made if need be.

        Without locks on the file system, warn and take it.

        Returns:
            False if another process, or another object of this class, holds it.

        Raises:
            OSError: the folder or the file in it cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        file = folder.resolve() / LOCK_FILE
        lock = _lock(file)
        if not _acquired(lock, folder):
            return False
        if _is_named(file):
            lock.release()
            return False
        first = os.path.relpath(self._first, file.parent) if self._first else ""
        try:
            file.write_bytes(os.fsencode("\n".join([_holder(os.environ), self._word, first])))
        except OSError:  # a full disk: the lock counts, not its text
            self._locked.append(lock)
            return True
        if self._first:
            lock.release()
        else:
            self._locked.append(lock)
            self._first = file
        return True

    def __enter__(self) -> RunLocks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for lock in self._locked:
            lock.release()
        self._locked = []
        self._first = None
        self._word = uuid4().hex


def lock_holder(folder: Path) -> str:
    """Read who took the run of a folder last: ``HOST process PID``, and the job of a queue."""
    return _text(folder / LOCK_FILE)[0].strip()


def is_locked(folder: Path) -> bool:
    """Return whether some process trains the run of a folder at this moment."""
    return _is_named(folder / LOCK_FILE) or _is_held(folder / LOCK_FILE)


def _is_named(file: Path) -> bool:
    """Return whether a file names another one that is locked by the same word."""
    _, word, first = _text(file)
    named = (file.parent / first).resolve()
    if named.name != LOCK_FILE or named == file.resolve():
        return False
    return _text(named)[1] == word and _is_held(named)


def _is_held(file: Path) -> bool:
    """Return whether some process holds the lock on a file."""
    if not file.is_file():
        return False
    lock = _lock(file)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:  # no locks here, or a folder of somebody else
        return False
    lock.release()
    return False


def _text(file: Path) -> tuple[str, str, str]:
    """Read the three lines of a lock file, empty if it lacks them.

    Earlier versions wrote only one.
    """
    try:
        holder, _, rest = os.fsdecode(read_regular(file)).partition("\n")
    except OSError:
        return "", "", ""
    word, _, first = rest.replace("\0", "").partition("\n")  # no path holds a zero byte
    return holder, word, first


@contextmanager
def exclusive(path: Path, waiting: str = "") -> Iterator[None]:
    """Let one process in at a time: wait until no other holds the lock.

    A file system without locks lets all in.

    Args:
        path: of the lock file; it is made if need be, and stays.
        waiting: logged if another process holds it.

    Raises:
        OSError: the file cannot be made.
    """
    with try_exclusive(path) as acquired:
        if acquired:
            yield
            return
    if waiting:
        log.info("%s", waiting)
    with _lock(path):
        yield


@contextmanager
def try_exclusive(path: Path) -> Iterator[bool]:
    """Take the lock as :func:`exclusive` does, without waiting.

    Yields:
        False if another process holds the lock.

    Raises:
        OSError: the file cannot be made.
    """
    lock = _lock(path)
    acquired = _acquired(lock, path)
    try:
        yield acquired
    finally:
        lock.release()


def _lock(path: Path) -> FileLock:
    # Its file is never removed or replaced: a lock on a file that has lost its name would keep no
    # process out. Not bound to a thread, so another thread than the one that took it can free it.
    return FileLock(path, thread_local=False, preserve_lock_file=True)


def _acquired(lock: FileLock, path: Path) -> bool:
    """Try to take a lock; return whether it was taken, or the file system has none.

    The latter is logged as a warning.
    """
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        log.warning(
            "%s: its file system has no locks (%s); start no second command over the same folder",
            path,
            error.strerror,
        )
    return True


def _holder(environment: Mapping[str, str]) -> str:
    holder = f"{socket.gethostname()} process {os.getpid()}"
    job = environment.get("SLURM_ARRAY_JOB_ID")
    if job:
        job += f"_{environment.get('SLURM_ARRAY_TASK_ID')}"
    else:
        job = environment.get("SLURM_JOB_ID")
    return f"{holder} job {job}" if job else holder

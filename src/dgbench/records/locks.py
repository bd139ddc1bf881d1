"""Locks on files, which the system frees when their process ends, however it ends.

The file stays behind; what counts is the lock alone, so nothing is ever stale. A run is trained by the process that
holds the lock on the file in its folder, whose text says who held it last. Locks reach across the machines of a
cluster as far as its file system carries them (docs/how_to/sweeps.md).
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

LOCK_FILE = "lock"
#: what file systems without locks answer
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)

log = logging.getLogger("dgbench")


class RunLocks:
    """Runs that this process trains; leaving the context frees them, and so does the end of the process.

    Programs started meanwhile, and children made by ``fork``, hold nothing.
    """

    def __init__(self) -> None:
        self._held: list[FileLock] = []

    def take(self, folder: Path) -> bool:
        """Take the run of a folder, which is made if need be. A file system without locks warns, and gives it.

        Returns:
            False where another process, or another object of this class, holds it.

        Raises:
            OSError: the folder or the file in it cannot be made.
        """
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder / LOCK_FILE)
        if not _acquired(lock, folder):
            return False
        self._held.append(lock)
        with suppress(OSError):  # a full disk: the lock counts, not its text
            (folder / LOCK_FILE).write_text(f"{_holder(os.environ)}\n", encoding="utf-8")
        return True

    def __enter__(self) -> RunLocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for lock in self._held:
            lock.release()
        self._held = []


def lock_holder(folder: Path) -> str:
    """Who took the run of a folder last: ``HOST process PID``, and the job where a queue started it."""
    try:
        return (folder / LOCK_FILE).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def is_locked(folder: Path) -> bool:
    """Whether some process trains the run of a folder at this moment."""
    file = folder / LOCK_FILE
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


@contextmanager
def alone(path: Path, waiting: str = "") -> Iterator[None]:
    """One process at a time: waits until no other holds the lock. Without locks on the file system, all at a time.

    Args:
        path: of the lock file; it is made if need be, and stays.
        waiting: logged where another process holds it.

    Raises:
        OSError: the file cannot be made.
    """
    with try_alone(path) as acquired:
        if acquired:
            yield
            return
    if waiting:
        log.info("%s", waiting)
    with _lock(path):
        yield


@contextmanager
def try_alone(path: Path) -> Iterator[bool]:
    """:func:`alone` without waiting.

    Yields:
        False where another process holds the lock.

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
    # Its file is never removed or replaced: a lock on a file that has lost its name would keep no process out.
    # Not bound to a thread, so the lock can be freed by another than the one that took it.
    return FileLock(path, thread_local=False, preserve_lock_file=True)


def _acquired(lock: FileLock, where: Path) -> bool:
    """Whether the lock is ours now, or cannot be had because there are none here."""
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        log.warning(
            "%s: its file system has no locks (%s); start no second command over the same folder",
            where,
            error.strerror,
        )
    return True


def _holder(environment: Mapping[str, str]) -> str:
    job = environment.get("SLURM_ARRAY_JOB_ID")
    job = f"{job}_{environment.get('SLURM_ARRAY_TASK_ID')}" if job else environment.get("SLURM_JOB_ID")
    return f"{socket.gethostname()} process {os.getpid()}" + (f" job {job}" if job else "")

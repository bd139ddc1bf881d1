"""Who trains a member: a lock on a file in its folder, which the system frees when its process ends, however it ends.

The file stays behind and says who held it last; what counts is the lock alone, so nothing is ever stale. Locks reach
across the machines of a cluster as far as its file system carries them (docs/sweeps.md).
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

CLAIM_FILE = "claim"
_BUSY = (errno.EWOULDBLOCK, errno.EACCES)

log = logging.getLogger("dgbench")


class Claims:
    """Members claimed by this process; leaving the context frees them, and so does the end of the process.

    A child made by ``fork`` shares the locks of its parent until both are gone; one made by ``exec`` does not.
    """

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def take(self, folder: Path) -> bool:
        """Claim the member of a folder, which is made if need be.

        Returns:
            False where another process, or another object of this class, holds it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / CLAIM_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                os.close(handle)
                return False
            log.warning(
                "%s: its file system has no locks (%s); start no second command over the same folder",
                folder,
                error.strerror,
            )
        self._held[folder] = handle
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{_who(os.environ)}\n".encode(), 0)
        except OSError:  # a full disk: the lock counts, not its text
            pass
        return True

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for handle in self._held.values():
            os.close(handle)  # closing frees the lock
        self._held = {}


def claimant(folder: Path) -> str:
    """Who claimed the member of a folder last: ``HOST process PID``, and the job where a queue started it."""
    try:
        return (folder / CLAIM_FILE).read_text(errors="replace").strip()
    except OSError:
        return ""


def is_claimed(folder: Path) -> bool:
    """Whether some process trains the member of a folder at this moment."""
    try:
        handle = os.open(folder / CLAIM_FILE, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _BUSY
    finally:
        os.close(handle)
    return False


def _who(environment: Mapping[str, str]) -> str:
    job = environment.get("SLURM_ARRAY_JOB_ID")
    job = f"{job}_{environment.get('SLURM_ARRAY_TASK_ID')}" if job else environment.get("SLURM_JOB_ID")
    return f"{socket.gethostname()} process {os.getpid()}" + (f" job {job}" if job else "")

"""``planned.json`` in a job's folder: what it means to train."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dgbench.cli.study import Study
from dgbench.records import PLAN_FILE, write_whole


def keep_plan(folder: Path, studies: Sequence[Study]) -> None:
    """Add what a job means to train to the plan in its folder, so that what was never begun can be missed."""
    file = folder / PLAN_FILE
    planned = [os.path.relpath(member.folder, folder) for study in studies for member in study.members]
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        try:
            known = list(json.loads(file.read_text())["members"])
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut short
            known = []
        write_whole(file, json.dumps({"members": list(dict.fromkeys([*known, *planned]))}, indent=1) + "\n")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time: jobs that train some folds each of one study share its folder."""
    handle = os.open(folder, os.O_RDONLY)  # closing it frees the lock
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

"""The jobs that sweeps mean to run, in ``.jobs`` of the folder that holds their studies.

A job makes its run folders when it begins. Until then, in a queue or where the sweep was ended before its turn, only
this file tells of it.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dgbench.records.files import read_regular, write_whole
from dgbench.records.locks import alone

JOBS = ".jobs"
EXPECTED_FILE = "expected.json"


def expect_jobs(places: Iterable[tuple[Path, str]], command: str) -> None:
    """Say that a command means to run jobs. Those that it named before are forgotten, and those that ended.

    Args:
        places: folder of a job's studies, and its key, see :func:`dgbench.training.job_record.record_end`.
        command: as typed, for a shell.

    Raises:
        OSError: it cannot be written.
    """
    keys: dict[Path, list[str]] = defaultdict(list)
    for parent, key in places:
        keys[parent].append(key)
    for parent, own in keys.items():
        _replace(parent, own, command)


def forget_jobs(parents: Iterable[Path], command: str) -> None:
    """Expect no more of a command, which has told how each of its jobs ended.

    Args:
        parents: folders of the jobs' studies.
        command: as typed, for a shell.
    """
    for parent in parents:
        with suppress(OSError):  # a full disk: they stay expected, and the same command finds them done
            _replace(parent, [], command)


def _replace(parent: Path, keys: list[str], command: str) -> None:
    folder = parent / JOBS
    if not keys and not (folder / EXPECTED_FILE).is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / f".{EXPECTED_FILE}.lock"):
        try:
            others = {key: typed for key, typed in unended_jobs(parent).items() if typed != command}
        except (OSError, ValueError):  # none yet, or cut short
            others = {}
        write_whole(folder / EXPECTED_FILE, json.dumps({**others, **dict.fromkeys(keys, command)}, indent=1) + "\n")


def unended_jobs(parent: Path) -> dict[str, str]:
    """The commands of expected jobs that never came to their end, by key.

    Args:
        parent: folder of their studies.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no list of jobs.
    """
    try:
        jobs = json.loads(read_regular(parent / JOBS / EXPECTED_FILE))
    except RecursionError as error:
        raise ValueError("nested without end") from error
    if not (isinstance(jobs, dict) and all(isinstance(typed, str) for typed in jobs.values())):
        raise ValueError("no list of jobs")
    # a job that was split ends when its parts do, which are expected themselves
    ended = {name.removesuffix(".json").removesuffix(".parts") for name in os.listdir(parent / JOBS)}
    return {key: command for key, command in jobs.items() if key not in ended}

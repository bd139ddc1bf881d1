"""What a command leaves of its plan: ``planned.json`` in a study, and in ``.jobs`` the jobs of a sweep and their runs.

A job of a sweep makes its run folders when it begins. Until then, in a queue or where the sweep was ended before its
turn, only ``expected.json`` tells of it. When it comes to its end it leaves a record of its runs; with it, starting a
finished sweep again costs a few small files per job. The record is a memory, never the truth: a job has nothing left
only while every run that it names is done by the status in the run's own folder.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from dgbench.records.files import read_json, write_whole
from dgbench.records.locks import alone
from dgbench.records.rows import PLAN_FILE
from dgbench.records.status import FAILED, is_done, read_status

JOBS = ".jobs"
EXPECTED_FILE = "expected.json"
PARTS = f"{JOBS}/*.parts.json"  #: in the folder of a sweep, of jobs that were split


def record_end(parent: Path, key: str, runs: Sequence[Path]) -> None:
    """A job came to its end, whether its runs are complete or not. A full disk keeps no record of it.

    Args:
        parent: folder of its studies.
        key: equal for jobs that plan the same runs over the same files.
        runs: folders of all its runs.
    """
    file = _file(parent, key)
    with suppress(OSError):  # without a record the job is planned again, which trains nothing
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps([os.path.relpath(run, parent) for run in runs]))


def is_left(parent: Path, key: str, retry: str) -> bool:
    """Whether a job would train anything.

    Args:
        parent: folder of its studies.
        key: see :func:`record_end`.
        retry: as in ``conf/train.yaml``.
    """
    runs = recorded_runs(parent, key)
    if runs is None:
        return True
    if retry == "failed":
        return any(read_status(run).word == FAILED for run in runs)
    return any(not is_done(run) and not (retry == "none" and read_status(run).word == FAILED) for run in runs)


def keep_parts(parent: Path, key: str, parts: Sequence[Sequence[str]]) -> None:
    """Remember that a job was split, so that the same command has the same parts.

    Args:
        parent: folder of its studies.
        key: see :func:`record_end`.
        parts: overrides that each adds to those of the job.

    Raises:
        OSError: it cannot be written.
    """
    file = _file(parent, f"{key}.parts")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps([list(words) for words in parts], indent=1) + "\n")


def parts_of(parent: Path, key: str) -> list[list[str]]:
    """What each part of a job adds to its overrides; empty where it was never split."""
    try:
        return [[str(word) for word in words] for words in read_json(_file(parent, f"{key}.parts"))]
    except (OSError, ValueError, TypeError):
        return []


def recorded_runs(parent: Path, key: str) -> list[Path] | None:
    """Folders of the runs of a job that came to its end; None where it never did."""
    try:
        return [parent / str(run) for run in read_json(_file(parent, key))]
    except (OSError, ValueError, TypeError):
        return None


def log_file(parent: Path, key: str) -> Path:
    """Where what a job prints is kept, where several run at a time."""
    return parent / JOBS / f"{key}.log"


def _file(parent: Path, key: str) -> Path:
    return parent / JOBS / f"{key}.json"


def expect_jobs(places: Iterable[tuple[Path, str]], command: str) -> None:
    """Say that a command means to run jobs. Those that it named before are forgotten, and those that ended.

    Args:
        places: folder of a job's studies, and its key, see :func:`record_end`.
        command: as typed, for a shell.

    Raises:
        OSError: it cannot be written.
    """
    keys: dict[Path, list[str]] = defaultdict(list)
    for parent, key in places:
        keys[parent].append(key)
    for parent, job_keys in keys.items():
        _replace(parent, job_keys, command)


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
    jobs = read_json(parent / JOBS / EXPECTED_FILE)
    if not (isinstance(jobs, dict) and all(isinstance(typed, str) for typed in jobs.values())):
        raise ValueError("no list of jobs")
    # a job that was split ends when its parts do, which are expected themselves
    ended = {name.removesuffix(".json").removesuffix(".parts") for name in os.listdir(parent / JOBS)}
    return {key: command for key, command in jobs.items() if key not in ended}


def keep_plan(folder: Path, runs: Sequence[str]) -> None:
    """Add runs to ``planned.json`` of a study's folder, so that what was never begun can be missed.

    Args:
        folder: of the study; commands that train some folds each of one study share it.
        runs: names of the run folders that a command means to fill.
    """
    file = folder / PLAN_FILE
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / f".{PLAN_FILE}.lock"):
        try:
            planned = list(read_json(file)["runs"])
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut short
            planned = []
        names = list(dict.fromkeys([*planned, *runs]))
        if names != planned:
            write_whole(file, json.dumps({"runs": names}, indent=1) + "\n")

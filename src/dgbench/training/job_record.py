"""What a job leaves when it comes to its end: which runs it planned, in ``.jobs`` of the folder that holds its studies.

With it, starting a finished sweep again costs a few small files per job. The record is a memory, never the truth: a job
has nothing left only while every run that it names is done by the status in the run's own folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dgbench.records.expected_jobs import JOBS
from dgbench.records.files import write_whole
from dgbench.records.status import FAILED, is_done, read_status


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
    try:
        named = json.loads(_file(parent, key).read_text())
    except (OSError, ValueError):  # it never came to its end
        return True
    runs = [parent / str(run) for run in named]
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
    file = _parts_file(parent, key)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps([list(words) for words in parts], indent=1) + "\n")


def parts_of(parent: Path, key: str) -> list[list[str]]:
    """What each part of a job adds to its overrides; empty where it was never split."""
    try:
        return [[str(word) for word in words] for words in json.loads(_parts_file(parent, key).read_text())]
    except (OSError, ValueError, TypeError):
        return []


def recorded_runs(parent: Path, key: str) -> list[Path]:
    """Folders of the runs of a job that came to its end; empty where it never did."""
    try:
        return [parent / str(run) for run in json.loads(_file(parent, key).read_text())]
    except (OSError, ValueError, TypeError):
        return []


def log_file(parent: Path, key: str) -> Path:
    """Where what a job prints is kept, where several run at a time."""
    return parent / JOBS / f"{key}.log"


def _file(parent: Path, key: str) -> Path:
    return parent / JOBS / f"{key}.json"


def _parts_file(parent: Path, key: str) -> Path:
    return parent / JOBS / f"{key}.parts.json"

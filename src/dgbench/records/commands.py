"""What a command leaves of its plan: ``planned.json`` in a study, and in ``.jobs`` a sweep's jobs.

A job of a sweep makes its run folders when it begins. Until then, in a queue or where the sweep was
ended before its turn, only ``expected.json`` tells of it. When it comes to its end it leaves a
record of its runs; with it, starting a finished sweep again costs a few small files per job. The
record is a memory, never the truth: a job has nothing left only while every run that it names is
done by the status in the run's own folder.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from dgbench.records.files import read_json, write_whole
from dgbench.records.locks import exclusive
from dgbench.records.rows import PLAN_FILE
from dgbench.records.status import FAILED, is_done, read_status

JOBS = ".jobs"
EXPECTED_FILE = "expected.json"


class JobPlace(NamedTuple):
    """Where a job of a sweep keeps what it leaves."""

    parent: Path  #: folder of its studies
    key: str  #: equal for jobs that plan the same runs over the same files

    def record_end(self, runs: Sequence[Path]) -> None:
        """Record that the job ended, and the folders of its runs, complete or not.

        A full disk keeps no record.

        Without a record it is planned again, which trains nothing.
        """
        with suppress(OSError):
            self._write("json", [os.path.relpath(run, self.parent) for run in runs])

    def runs(self) -> list[Path] | None:
        """Read the folders of its runs, or return None if the job never came to its end."""
        try:
            return [self.parent / str(run) for run in read_json(self.file("json"))]
        except (OSError, ValueError, TypeError):
            return None

    def is_left(self, retry: str) -> bool:
        """Return whether the job would train anything; ``retry`` as in ``conf/train.yaml``."""
        runs = self.runs()
        if runs is None:
            return True
        if retry == "failed":
            return any(read_status(run).word == FAILED for run in runs)
        for run in runs:
            if is_done(run):
                continue
            if retry != "none" or read_status(run).word != FAILED:
                return True
        return False

    def file(self, kind: str) -> Path:
        """Return the path of one of its files.

        ``log`` keeps what the job prints if several run at a time.
        """
        return self.parent / JOBS / f"{self.key}.{kind}"

    def _write(self, kind: str, content: Sequence[Any]) -> None:
        self.file(kind).parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.file(kind), json.dumps(content))


def expect_jobs(places: Iterable[JobPlace], command: str) -> None:
    """Record the jobs that a command, as typed, means to run.

    Those that it named before or that ended are forgotten.

    Raises:
        OSError: it cannot be written.
    """
    keys: dict[Path, list[str]] = defaultdict(list)
    for parent, key in places:
        keys[parent].append(key)
    for parent, job_keys in keys.items():
        _replace(parent, job_keys, command)


def forget_jobs(parents: Iterable[Path], command: str) -> None:
    """Forget the jobs of a command, as typed, in these folders, once it has told how they ended."""
    for parent in parents:
        # on a full disk they stay expected, and the same command finds them done
        with suppress(OSError):
            _replace(parent, [], command)


def _replace(parent: Path, keys: list[str], command: str) -> None:
    folder = parent / JOBS
    if not keys and not (folder / EXPECTED_FILE).is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / f".{EXPECTED_FILE}.lock"):
        jobs = {}
        with suppress(OSError, ValueError):  # none yet, or cut short
            jobs = unended_jobs(parent)
        others = {key: typed for key, typed in jobs.items() if typed != command}
        expected = {**others, **dict.fromkeys(keys, command)}
        write_whole(folder / EXPECTED_FILE, json.dumps(expected, indent=1) + "\n")


def unended_jobs(parent: Path) -> dict[str, str]:
    """Read the commands of expected jobs that never came to their end, by key.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no list of jobs.
    """
    jobs = read_json(parent / JOBS / EXPECTED_FILE)
    if not (isinstance(jobs, dict) and all(isinstance(typed, str) for typed in jobs.values())):
        raise ValueError("no list of jobs")
    # an earlier version split jobs into parts, which are expected themselves
    ended = set()
    for name in os.listdir(parent / JOBS):
        ended.add(name.removesuffix(".json").removesuffix(".parts"))
    return {key: command for key, command in jobs.items() if key not in ended}


def keep_plan(folder: Path, runs: Sequence[str]) -> None:
    """Add runs to ``planned.json`` of a study's folder, so that what was never begun can be missed.

    Args:
        folder: of the study; commands that train some folds each of one study share it.
        runs: names of the run folders that a command means to fill.
    """
    file = folder / PLAN_FILE
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / f".{PLAN_FILE}.lock"):
        try:
            planned = list(read_json(file)["runs"])
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut short
            planned = []
        names = list(dict.fromkeys([*planned, *runs]))
        if names != planned:
            write_whole(file, json.dumps({"runs": names}, indent=1) + "\n")

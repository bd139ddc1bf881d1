"""The queue of Slurm: what was submitted from one folder, by this command or an earlier one, and how it ended.

Slurm is asked so that no answer keeps us waiting without end.
"""

from __future__ import annotations

import getpass
import json
import pickle
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS = 30.0  # for an answer


class QueueError(Exception):
    """Slurm gave no answer."""


def in_queue() -> dict[str, str]:
    """State and reason of every job of this user that waits or runs, by its id (``12_3`` in an array).

    Raises:
        QueueError: Slurm gave no answer.
    """
    lines = _ask(["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i|%T|%r"])
    found = (line.split("|") for line in lines.splitlines() if line.count("|") == 2)
    return {job.strip(): f"{state} ({reason})" for job, state, reason in found}


def last_state(job: str) -> str:
    """``FAILED``, ``CANCELLED``, ...: how a job left the queue, as long as Slurm remembers it; or empty."""
    try:
        told = _ask(["scontrol", "--oneliner", "show", "job", job])
    except QueueError:
        return ""
    state = re.search(r"\bJobState=(\w+)", told)
    return state[1] if state else ""


def _ask(command: list[str]) -> str:
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueueError(f"{command[0]}: {error}") from error
    if asked.returncode:
        raise QueueError(f"{command[0]}: {' '.join(asked.stderr.split())}")
    return asked.stdout


@dataclass
class Queued:
    """One job of the queue."""

    id: str
    numbers: list[int]  # of our jobs
    missing: int = 0  # polls


class Submissions:
    """The files of submitit, and beside them which jobs of a sweep each job of the queue runs.

    Args:
        folder: of submitit.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, job: str, keys: Sequence[str]) -> None:
        """Remember what a job of the queue runs.

        Raises:
            OSError: it cannot be written.
        """
        (self.folder / f"{job}_jobs.json").write_text(json.dumps(list(keys)))

    def held(self, alive: Mapping[str, str], keys: Sequence[str]) -> list[Queued]:
        """Jobs of the queue that run some of these jobs of a sweep.

        Args:
            alive: the queue, by id.
            keys: of the jobs of a sweep.
        """
        numbers = {key: number for number, key in enumerate(keys)}
        found = []
        for job in alive:
            own = [numbers[key] for key in self._keys(self.folder / f"{job}_jobs.json") if key in numbers]
            if own:
                found.append(Queued(job, own))
        return found

    def ends(self, keys: Sequence[str]) -> dict[str, str]:
        """How the last job of the queue ended that ran each of these jobs, none of which is there: in one line."""
        last: dict[str, str] = {}
        for file in sorted(self.folder.glob("*_jobs.json"), key=lambda file: file.stat().st_mtime_ns):
            last |= dict.fromkeys(self._keys(file), file.name.removesuffix("_jobs.json"))
        jobs = {job: self._end(job) for job in {last[key] for key in keys if key in last}}
        return {key: jobs[last[key]] for key in keys if key in last}

    def result(self, job: str) -> dict[str, str] | str | None:
        """What a job of the queue left: problems by key, or why it has none; None where it left nothing."""
        try:
            how, what = pickle.loads((self.folder / f"{job}_0_result.pkl").read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
        if how == "success":
            problems: dict[str, str] = what
            return problems
        return f"job {job}: {str(what).strip().splitlines()[-1]}"

    def _end(self, job: str) -> str:
        if self.result(job) is not None:
            return "failed"
        return {"CANCELLED": "cancelled", "COMPLETED": "failed"}.get(last_state(job), "lost")

    @staticmethod
    def _keys(file: Path) -> list[str]:
        try:
            return [str(key) for key in json.loads(file.read_text())]
        except (OSError, ValueError, TypeError):  # not of this sweep, or cut short
            return []

"""What was submitted to a queue from one folder, by this command or an earlier one, and how it ended."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.sweeps.queue import last_state


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

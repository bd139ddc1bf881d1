"""The files of submitit, and beside them what each job of the queue runs and how it ended."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgbench.errors import one_line
from dgbench.records.files import open_regular, read_json, write_whole
from dgbench.sweeps.queue import last_state

RESULT = "result.json"  # behind the id of a job of the queue
LOG_END = 4096  # bytes of a log in which its last line is looked for


def write_result(folder: Path, job: str, result: Mapping[str, Any]) -> None:
    """Write how a job of the queue ended beside submitit's own files, as JSON.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(folder / f"{job}_{RESULT}", json.dumps(result, indent=1) + "\n")


@dataclass
class Queued:
    """One job of the queue."""

    id: str
    numbers: list[int]  # of our jobs
    missing: int = 0  # polls


class Submissions:
    """The files of submitit, and beside them which jobs of a sweep each job of the queue runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, job: str, keys: Sequence[str]) -> None:
        """Remember what a job of the queue runs.

        Raises:
            OSError: it cannot be written.
        """
        (self.folder / f"{job}_jobs.json").write_text(json.dumps(list(keys)))

    def held(self, alive: Mapping[str, str], keys: Sequence[str]) -> list[Queued]:
        """Find the jobs of the queue that run some of these jobs of a sweep."""
        numbers = {key: number for number, key in enumerate(keys)}
        queued = []
        for job in alive:
            job_numbers = [
                numbers[key]
                for key in self._keys(self.folder / f"{job}_jobs.json")
                if key in numbers
            ]
            if job_numbers:
                queued.append(Queued(job, job_numbers))
        return queued

    def ends(self, keys: Sequence[str]) -> dict[str, str]:
        """Look up how jobs that are not in the queue last left it.

        Returns:
            ``failed``, ``cancelled`` or ``lost`` by the key of the job; none of jobs that were
            never submitted.
        """
        last: dict[str, str] = {}
        for file in sorted(self.folder.glob("*_jobs.json"), key=_written_at):
            last |= dict.fromkeys(self._keys(file), file.name.removesuffix("_jobs.json"))
        submitted = [key for key in keys if key in last]
        ends = {job: self._end(job) for job in {last[key] for key in submitted}}
        return {key: ends[last[key]] for key in submitted}

    def result(self, job: str) -> dict[str, str] | str | None:
        """Read the result of a job of the queue.

        Returns:
            Problems by key, or the error that ended the job, or None if it has no result.

        A job that ended before it could write one, because its node lacks a package, say, leaves
        submitit's pickle, of which no more is read than that it is there.
        """
        file = self.folder / f"{job}_{RESULT}"
        try:
            content = read_json(file)
        except FileNotFoundError:
            return (
                self._last_words(job) if (self.folder / f"{job}_0_result.pkl").is_file() else None
            )
        except (OSError, ValueError) as error:
            return f"job {job}: its result {file} cannot be read ({one_line(error)})"
        problems = content.get("problems") if isinstance(content, dict) else None
        if isinstance(problems, dict):
            return {str(key): _printable(problem) for key, problem in problems.items()}
        reason = content.get("error") if isinstance(content, dict) else None
        return f"job {job}: {_printable(reason or 'its result says nothing')}"

    def _last_words(self, job: str) -> str:
        """Return the last line that a job of the queue wrote to its log."""
        try:
            with open_regular(self.folder / f"{job}_0_log.err") as log:
                size = log.seek(0, io.SEEK_END)
                log.seek(max(0, size - LOG_END))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            lines = []
        return f"job {job}: {_printable(lines[-1] if lines else 'ended without a result')}"

    def _end(self, job: str) -> str:
        if self.result(job) is not None:
            return "failed"
        return {"CANCELLED": "cancelled", "COMPLETED": "failed"}.get(last_state(job), "lost")

    @staticmethod
    def _keys(file: Path) -> list[str]:
        try:
            return [str(key) for key in read_json(file)]
        except (OSError, ValueError, TypeError):  # not of this sweep, or cut short
            return []


def _written_at(file: Path) -> int:
    """Return when a file was written, in nanoseconds, or 0 for a link that leads nowhere."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _printable(text: object) -> str:
    """Put what a file says into one line of characters that a terminal shows."""
    line = " ".join(str(text).split())
    unprintable = {letter for letter in line if not letter.isprintable()}
    for letter in unprintable:
        line = line.replace(letter, "?")
    return line

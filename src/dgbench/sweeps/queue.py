"""What Slurm knows of our jobs, asked so that no answer keeps us waiting without end."""

from __future__ import annotations

import getpass
import re
import subprocess

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

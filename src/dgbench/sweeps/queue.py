"""Ask Slurm what its queue holds, how a job left it, and how large an array may be."""

from __future__ import annotations

import getpass
import re
import subprocess

SECONDS = 30.0  # for an answer of Slurm: none keeps us waiting without end
USUAL_ARRAY = 1001  # Slurm's own default of MaxArraySize


class QueueError(Exception):
    """Slurm gave no answer."""


def in_queue() -> dict[str, str]:
    """Read state and reason of every job of this user that waits or runs.

    Returns:
        ``RUNNING (None)`` and the like by the id of the job, ``12_3`` in an array.

    Raises:
        QueueError: Slurm gave no answer.
    """
    user = getpass.getuser()
    lines = _ask(["squeue", "--noheader", "--array", "--user", user, "--format", "%i|%T|%r"])
    entries = (line.split("|") for line in lines.splitlines() if line.count("|") == 2)
    return {job.strip(): f"{state} ({reason})" for job, state, reason in entries}


def last_state(job: str) -> str:
    """Look up how a job left the queue.

    Returns:
        ``FAILED``, ``CANCELLED``, ..., or an empty text once Slurm no longer remembers the job.
    """
    try:
        answer = _ask(["scontrol", "--oneliner", "show", "job", job])
    except QueueError:
        return ""
    state = re.search(r"\bJobState=(\w+)", answer)
    return state[1] if state else ""


def largest_array() -> int:
    """Look up how many jobs an array may have, or return Slurm's default if it does not say."""
    try:
        answer = _ask(["scontrol", "show", "config"])
    except QueueError:
        return USUAL_ARRAY
    limits = re.findall(r"\bMaxArraySize\s*=\s*(\d+)|\bmax_array_tasks=(\d+)", answer)
    sizes = [int(size or tasks) for size, tasks in limits]
    return max(1, min(sizes, default=USUAL_ARRAY))


def _ask(command: list[str]) -> str:
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueueError(f"{command[0]}: {error}") from error
    if asked.returncode:
        raise QueueError(f"{command[0]}: {' '.join(asked.stderr.split())}")
    return asked.stdout

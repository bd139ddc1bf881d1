"""How every run of a sweep stands: done, running, failed, stuck or waiting. Reads marks and heartbeats, no rows."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgbench.records import PLAN_FILE, PROGRESS_FILE
from dgbench.reports.folders import Problem, RunFolder, find_runs

STATES = ("done", "running", "failed", "stuck", "waiting")
FRESH = 30.0  # seconds; a run whose last sign of life is younger is running

_STUDY = re.compile(r"^(?P<group>.+)-s\d+-[0-9a-f]{12}$")


@dataclass(frozen=True)
class Beat:
    """A run's last sign of life (``progress.json``)."""

    step: int
    steps: int
    rate: float | None  #: optimizer steps per second; None before that is known
    time: float  #: Unix time
    host: str
    pid: int

    @property
    def seconds_left(self) -> float | None:
        """Until its last step, at the rate so far."""
        return (self.steps - self.step) / self.rate if self.rate else None


@dataclass(frozen=True)
class RunState:
    """One run folder."""

    folder: Path
    state: str  #: one of :data:`STATES`
    why: str = ""  #: why it failed or is stuck
    beat: Beat | None = None

    @property
    def group(self) -> str:
        """Dataset, algorithm and network, from the name of the study's folder."""
        study = self.folder.parent.name
        found = _STUDY.match(study)
        return found["group"] if found else study


def run_states(
    roots: Sequence[Path], now: float, stuck_after: float, is_claimed: Callable[[Path], bool]
) -> tuple[list[RunState], list[Problem]]:
    """Every run under the roots, and every one that a job planned and nobody has begun.

    Args:
        roots: folders, searched recursively.
        now: Unix time.
        stuck_after: seconds without a sign of life after which a run is stuck though it is claimed.
        is_claimed: whether some process holds the claim of a run folder.
    """
    folders, problems = find_runs(roots)
    states = [_state(folder, now, stuck_after, is_claimed) for folder in folders]
    begun = {os.path.realpath(state.folder) for state in states}
    waiting = {os.path.realpath(folder): folder for root in roots for folder in _planned(root)}
    states += [RunState(folder, "waiting") for real, folder in waiting.items() if real not in begun]
    named = [problem for problem in problems if problem.kind != "empty folder"]
    return sorted(states, key=lambda state: str(state.folder)), named


def _state(folder: RunFolder, now: float, stuck_after: float, is_claimed: Callable[[Path], bool]) -> RunState:
    if folder.status == "DONE":
        return RunState(folder.path, "done")
    if folder.status == "FAILED":
        return RunState(folder.path, "failed", folder.reason or "no reason given")
    if folder.status != "RUNNING":
        return RunState(folder.path, "waiting", folder.reason)
    beat = _beat(folder.path)
    age = now - (beat.time if beat else _marked(folder.path, now))
    why = _why_stuck(folder.path, beat, age, stuck_after, is_claimed)
    return RunState(folder.path, "stuck" if why else "running", why, beat)


def _why_stuck(
    folder: Path, beat: Beat | None, age: float, stuck_after: float, is_claimed: Callable[[Path], bool]
) -> str:
    where = f" at step {beat.step} of {beat.steps}" if beat else ""
    if beat and beat.host == socket.gethostname() and not _alive(beat.pid):
        return f"its process {beat.pid} is gone{where}; the same command goes on"
    if age <= FRESH:
        return ""
    if not is_claimed(folder):
        return f"nobody holds its claim{where}, {duration(age)} after its last sign of life; the same command goes on"
    if age > stuck_after:
        who = f", process {beat.pid} on {beat.host}" if beat else ""
        return f"no sign of life for {duration(age)}{where}{who}"
    return ""


def _beat(folder: Path) -> Beat | None:
    try:
        said: dict[str, Any] = json.loads((folder / PROGRESS_FILE).read_text())
        rate = said["steps_per_s"]
        return Beat(
            int(said["step"]),
            int(said["steps"]),
            None if rate is None else float(rate),
            float(said["time"]),
            str(said["host"]),
            int(said["pid"]),
        )
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or not ours
        return None


def _marked(folder: Path, now: float) -> float:
    try:
        return (folder / "status").stat().st_mtime
    except OSError:  # gone this moment
        return now


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def _planned(root: Path) -> list[Path]:
    """Run folders that the plans of jobs under a root name; jobs stand at most two levels down."""
    found = []
    for pattern in (PLAN_FILE, f"*/{PLAN_FILE}", f"*/*/{PLAN_FILE}"):
        for file in root.glob(pattern):
            try:
                members = json.loads(file.read_text())["members"]
                found += [Path(os.path.normpath(file.parent / str(member))) for member in members]
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return found


def duration(seconds: float) -> str:
    """``40 s``, ``2 min 05 s``, ``3 h 10 min``, ``2 d 04 h``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02} h"
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"

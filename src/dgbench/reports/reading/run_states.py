"""How every run of a sweep stands: done, running, failed, stuck or waiting. Reads statuses and beats, no rows."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.records.commands import EXPECTED_FILE, JOBS, unended_jobs
from dgbench.records.files import read_regular
from dgbench.records.rows import IDENTITY_FILE, PLAN_FILE
from dgbench.records.status import DONE, FAILED, INTERRUPTED, RUNNING, STATUS_FILE, Beat, duration, read_beat
from dgbench.reports.reading.folders import LOST_ROWS, UNREADABLE_PLAN, Problem, RunFolder, find_runs, printable

STATES = ("done", "running", "failed", "stuck", "interrupted", "waiting")
FRESH = 30.0  # seconds; a run whose last sign of life is younger is running
AHEAD = 10.0  # seconds; a sign of life that is further in the future tells nothing but that a clock is wrong

_STUDY = re.compile(r"^(?P<group>.+)-s\d+-[0-9a-f]{12}$")


@dataclass(frozen=True)
class RunState:
    """One run folder."""

    folder: Path
    state: str  #: one of :data:`STATES`
    why: str = ""  #: why it failed, is stuck or waits though it was begun, and where it was interrupted
    beat: Beat | None = None

    def command(self) -> str | None:
        """What was typed when it was last started; None where that is unknown."""
        try:
            words = json.loads(read_regular(self.folder / IDENTITY_FILE))["sessions"][-1]["typed"]
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None
        known = isinstance(words, list) and all(isinstance(word, str) and word.isprintable() for word in words)
        return shlex.join(words) if known else None

    @property
    def group(self) -> str:
        """Dataset, algorithm and network, from the name of the study's folder."""
        study = self.folder.parent.name
        found = _STUDY.match(study)
        return found["group"] if found else study


def run_states(
    roots: Sequence[Path], now: float, stuck_after: float, is_locked: Callable[[Path], bool]
) -> tuple[list[RunState], list[Problem]]:
    """Every run under the roots, and every one that a job planned and no process has begun.

    Args:
        roots: folders, searched recursively.
        now: Unix time.
        stuck_after: seconds without a sign of life after which a run is stuck though it is locked.
        is_locked: whether some process holds the lock of a run folder.
    """
    folders, problems = find_runs(roots)
    states = [_state(folder, now, stuck_after, is_locked, problems) for folder in folders]
    begun = {os.path.realpath(state.folder) for state in states}
    waiting = {os.path.realpath(folder): folder for root in roots for folder in _planned(root, problems)}
    states += [RunState(folder, "waiting") for real, folder in waiting.items() if real not in begun]
    problems += [Problem("lost rows", printable(f.path), f.reason) for f in folders if f.reason == LOST_ROWS]
    return sorted(states, key=lambda state: str(state.folder)), problems


def _state(
    folder: RunFolder, now: float, stuck_after: float, is_locked: Callable[[Path], bool], problems: list[Problem]
) -> RunState:
    if folder.status == DONE and folder.reason != LOST_ROWS:
        return RunState(folder.path, "done")
    if folder.status == FAILED:
        return RunState(folder.path, "failed", folder.reason or "no reason given")
    beat = read_beat(folder.path)
    if folder.status == INTERRUPTED:
        where = _where(beat) or " before its first step"
        return RunState(folder.path, "interrupted", f"stopped by Ctrl-C{where}", beat)
    if folder.status != RUNNING:
        return RunState(folder.path, "waiting", folder.reason)
    age = now - (beat.time if beat else _marked(folder.path, now))
    if age < -AHEAD:
        what = f"its last sign of life is {duration(-age)} in the future; its lock alone says whether it runs"
        problems.append(Problem("clock ahead", printable(folder.path), what))
    why = _why_stuck(folder.path, beat, age, stuck_after, is_locked)
    return RunState(folder.path, "stuck" if why else "running", why, beat)


def _why_stuck(
    folder: Path, beat: Beat | None, age: float, stuck_after: float, is_locked: Callable[[Path], bool]
) -> str:
    where = _where(beat)
    if beat and beat.host == socket.gethostname() and not _alive(beat.pid):
        return f"its process {beat.pid} is gone{where}; the same command resumes it"
    if -AHEAD <= age <= FRESH:
        return ""
    if not is_locked(folder):
        ago = f"{duration(age)} after its last sign of life" if age > 0 else "whose clock is ahead of this one"
        return f"no process holds its lock{where}, {ago}; the same command resumes it"
    if age > stuck_after:
        who = f", process {beat.pid} on {beat.host}" if beat else ""
        return f"no sign of life for {duration(age)}{where}{who}"
    return ""


def _where(beat: Beat | None) -> str:
    return f" at step {beat.step} of {beat.steps}" if beat else ""


def _marked(folder: Path, now: float) -> float:
    try:
        return (folder / STATUS_FILE).stat().st_mtime
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


def expected_jobs(roots: Sequence[Path]) -> tuple[dict[tuple[str, str], str], list[Problem]]:
    """Jobs of sweeps that never came to their end: the commands that meant to run them, by folder and key.

    Some may run; those that have not begun have no run folders yet.

    Args:
        roots: folders that hold the folders of sweeps, or are one.
    """
    jobs: dict[tuple[str, str], str] = {}
    problems = []
    for root in roots:
        for file in _below(root, f"{JOBS}/{EXPECTED_FILE}"):
            parent = file.parent.parent
            try:
                jobs |= {(os.path.realpath(parent), key): typed for key, typed in unended_jobs(parent).items()}
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or "it is no list of jobs"
                what = f"{why}; jobs that have not begun are not counted"
                problems.append(Problem(UNREADABLE_PLAN, printable(file), what))
    return jobs, problems


def _planned(root: Path, problems: list[Problem]) -> list[Path]:
    """Run folders that the plans of studies under a root name; they are at most two levels down."""
    found = []
    for file in _below(root, PLAN_FILE):
        try:
            plan = json.loads(read_regular(file))
            runs = plan["runs"] if "runs" in plan else plan["members"]  # as older versions wrote it
            if not (isinstance(runs, list) and all(isinstance(run, str) and run.isprintable() for run in runs)):
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            why = getattr(error, "strerror", None) or "it is no list of run folders"
            what = f"{why}; runs that were planned and not begun are not counted"
            problems.append(Problem(UNREADABLE_PLAN, printable(file), what))
            continue
        found += [Path(os.path.normpath(file.parent / run)) for run in runs]
    return found


def _below(root: Path, name: str) -> list[Path]:
    """Files of a name in a folder and down to two levels below it."""
    return [file for pattern in (name, f"*/{name}", f"*/*/{name}") for file in sorted(root.glob(pattern))]

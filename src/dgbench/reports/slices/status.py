"""``report=status``: a sweep as it stands, once or live: what is done, runs, failed, is stuck or
waits.

Reads statuses and signs of life; of rows whether a finished run has all of its own.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dgbench.configuration import command_line, with_python_path
from dgbench.errors import RecordError
from dgbench.phases import tracked
from dgbench.plan.settings import FileName
from dgbench.records import locks
from dgbench.records.commands import EXPECTED_FILE, JOBS, unended_jobs
from dgbench.records.files import read_json
from dgbench.records.rows import IDENTITY_FILE, PLAN_FILE, ROW_FILE
from dgbench.records.status import (
    DONE,
    FAILED,
    INTERRUPTED,
    RUNNING,
    STATUS_FILE,
    STOPPED,
    Beat,
    duration,
    lacking_rows,
    read_beat,
    trained_again,
)
from dgbench.reports.document import OF_DOCUMENTS, Report
from dgbench.reports.reading.folders import (
    HIDING,
    UNREADABLE_PLAN,
    Problem,
    RunFolder,
    find_runs,
    nothing_found,
    places,
    printable,
)
from dgbench.reports.tables import aligned
from dgbench.validation import Count1, Folders, Positive

# exit codes; 1 is a command that cannot work
ALL_DONE = 0
UNFINISHED = 2  #: something runs or waits, or may be hidden
BROKEN = 3  #: something failed or is stuck
COMMANDS = 5  # that continue what was interrupted, spelled out
STATES = ("done", "running", "failed", "stuck", "interrupted", "waiting")
FRESH = 30.0  # seconds; a run whose last sign of life is younger is running
# seconds; a sign of life that is further in the future tells nothing but that a clock is wrong
AHEAD = 10.0
_CLEAR = "\x1b[H\x1b[2J"
_STUDY = re.compile(r"^(?P<group>.+)-s\d+-[0-9a-f]{12}$")


@dataclass(frozen=True)
class RunState:
    """One run folder."""

    folder: Path
    state: str  #: one of :data:`STATES`
    #: why it failed, is stuck or waits though it was begun, and where it was interrupted
    reason: str = ""
    beat: Beat | None = None

    def command(self) -> str | None:
        """Read the command that was typed when the run was last started.

        Returns None if that is unknown.
        """
        try:
            session = read_json(self.folder / IDENTITY_FILE)["sessions"][-1]
            words = session["typed"]
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None
        if not (
            isinstance(words, list)
            and all(isinstance(word, str) and word.isprintable() for word in words)
        ):
            return None
        path = session.get("python_path", "")
        is_path = isinstance(path, str) and path.isprintable()
        return with_python_path(command_line(words), path if is_path else "")

    @property
    def group(self) -> str:
        """Dataset, algorithm and network, from the name of the study's folder."""
        study = self.folder.parent.name
        match = _STUDY.match(study)
        return match["group"] if match else study


def run_states(
    roots: Sequence[Path], now: float, stuck_after: float, is_locked: Callable[[Path], bool]
) -> tuple[list[RunState], list[Problem]]:
    """List every run under the roots, and every one that a job planned and no process has begun.

    Args:
        roots: folders, searched recursively.
        now: Unix time.
        stuck_after: seconds without a sign of life after which a run is stuck though it is locked.
        is_locked: whether some process holds the lock of a run folder.
    """
    folders, problems = find_runs(roots)
    states = [
        _state(folder, now, stuck_after, is_locked, problems)
        for folder in tracked(folders, "looking at runs", len(folders), "runs")
    ]
    begun = {os.path.realpath(state.folder) for state in states}
    waiting = {}
    for root in roots:
        for run in _planned(root, problems):
            waiting[os.path.realpath(run)] = run
    states += [RunState(folder, "waiting") for real, folder in waiting.items() if real not in begun]
    return sorted(states, key=lambda state: str(state.folder)), problems


def _state(
    folder: RunFolder,
    now: float,
    stuck_after: float,
    is_locked: Callable[[Path], bool],
    problems: list[Problem],
) -> RunState:
    if folder.status == DONE:
        lacking = _lacking(folder.path, *_changed(folder.path / ROW_FILE))
        if not lacking:
            return RunState(folder.path, "done")
        reason = trained_again(lacking)
        problems.append(Problem("lost rows", printable(folder.path), reason))
        return RunState(folder.path, "waiting", reason)
    if folder.status == STOPPED:
        return RunState(folder.path, "done", f"stopped by its search {folder.reason}")
    if folder.status == FAILED:
        return RunState(folder.path, "failed", folder.reason or "no reason given")
    beat = read_beat(folder.path)
    if folder.status == INTERRUPTED:
        position = _where(beat) or " before its first step"
        return RunState(folder.path, "interrupted", folder.reason or f"interrupted{position}", beat)
    if folder.status != RUNNING:
        return RunState(folder.path, "waiting", folder.reason)
    marked = now
    with suppress(OSError):  # gone this moment
        marked = (folder.path / STATUS_FILE).stat().st_mtime
    age = now - (beat.time if beat else marked)
    if age < -AHEAD:
        warning = (
            f"its last sign of life is {duration(-age)} in the future; its lock alone says "
            "whether it runs"
        )
        problems.append(Problem("clock ahead", printable(folder.path), warning))
    reason = _why_stuck(folder.path, beat, age, stuck_after, is_locked)
    return RunState(folder.path, "stuck" if reason else "running", reason, beat)


@lru_cache(maxsize=100_000)
def _lacking(folder: Path, size: int, time_ns: int) -> str:
    """Cache :func:`lacking_rows` of a row file that does not change: a live status looks again and
    again.
    """
    return lacking_rows(folder)


def _changed(file: Path) -> tuple[int, int]:
    """Return size and time (ns) of a file; -1 and -1 of one that is not there."""
    try:
        about = file.stat()
        return about.st_size, about.st_mtime_ns
    except OSError:
        return -1, -1


def _why_stuck(
    folder: Path,
    beat: Beat | None,
    age: float,
    stuck_after: float,
    is_locked: Callable[[Path], bool],
) -> str:
    position = _where(beat)
    if beat and beat.host == socket.gethostname() and not _alive(beat.pid):
        return f"its process {beat.pid} is gone{position}; the same command resumes it"
    if -AHEAD <= age <= FRESH:
        return ""
    if not is_locked(folder):
        ago = (
            f"{duration(age)} after its last sign of life"
            if age > 0
            else "whose clock is ahead of this one"
        )
        return f"no process holds its lock{position}, {ago}; the same command resumes it"
    if age > stuck_after:
        process = f", process {beat.pid} on {beat.host}" if beat else ""
        return f"no sign of life for {duration(age)}{position}{process}"
    return ""


def _where(beat: Beat | None) -> str:
    return f" at step {beat.step} of {beat.steps}" if beat else ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def expected_jobs(roots: Sequence[Path]) -> tuple[dict[tuple[str, str], str], list[Problem]]:
    """Find the jobs of sweeps that never came to their end: the commands that meant to run them, by
    folder and key.

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
                jobs |= {
                    (os.path.realpath(parent), key): typed
                    for key, typed in unended_jobs(parent).items()
                }
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "it is no list of jobs"
                text = f"{reason}; jobs that have not begun are not counted"
                problems.append(Problem(UNREADABLE_PLAN, printable(file), text))
    return jobs, problems


def _planned(root: Path, problems: list[Problem]) -> list[Path]:
    """List the run folders that plans name; plans are at most two levels below the root."""
    folders = []
    for file in _below(root, PLAN_FILE):
        try:
            plan = read_json(file)
            runs = plan["runs"] if "runs" in plan else plan["members"]  # as older versions wrote it
            if not (
                isinstance(runs, list)
                and all(isinstance(run, str) and run.isprintable() for run in runs)
            ):
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "strerror", None) or "it is no list of run folders"
            text = f"{reason}; runs that were planned and not begun are not counted"
            problems.append(Problem(UNREADABLE_PLAN, printable(file), text))
            continue
        folders += [Path(os.path.normpath(file.parent / run)) for run in runs]
    return folders


def _below(root: Path, name: str) -> list[Path]:
    """Find the files of a name in a folder and down to two levels below it."""
    files: list[Path] = []
    for pattern in (name, f"*/{name}", f"*/*/{name}"):
        files += sorted(root.glob(pattern))
    return files


class StatusReport(Report):
    """Prints a line for every dataset, algorithm and network, then what runs, what failed and what
    is stuck.

    Args:
        name: of the report.
        roots: folder, or folders, searched for runs, recursively.
        is_locked: whether some process holds the lock of a run folder.
        every: seconds between two looks; None looks once.
        stuck_after: seconds without a sign of life after which a locked run is stuck.
        most: lines printed of what runs, failed or is stuck, each.
    """

    roots: Folders
    is_locked: Callable[[Path], bool] = locks.is_locked
    name: FileName = "status"
    every: Positive | None = None
    stuck_after: Positive = 600.0
    most: Count1 = 20
    unread = OF_DOCUMENTS

    def show(self) -> int:
        """Print the table until nothing runs any more (once without ``every``).

        Returns:
            exit code: 0 all done; 2 something runs or waits, or may be hidden in a folder or file
            that cannot be read, or a job of a sweep has not ended; 3 something failed or is stuck.

        Raises:
            RecordError: there is not one run, and no job that is to begin any.
        """
        searched = places(self.roots)
        while True:
            states, problems = run_states(searched, time.time(), self.stuck_after, self.is_locked)
            jobs, unreadable = expected_jobs(searched)
            problems += unreadable
            if not states and not jobs:
                raise RecordError(
                    f"{nothing_found(searched, problems)}; name folders with runs=[DIR]"
                )
            clear = _CLEAR if self.every and sys.stdout.isatty() else ""
            print(clear + status_text(states, problems, self.most, list(jobs.values())), flush=True)
            standing = {state.state for state in states}
            if not self.every or "running" not in standing:
                if standing & {"failed", "stuck"}:
                    return BROKEN
                return (
                    ALL_DONE
                    if standing == {"done"} and not jobs and not _hiding(problems)
                    else UNFINISHED
                )
            time.sleep(self.every)
            print(flush=True)


def status_text(
    states: Sequence[RunState],
    problems: Sequence[Problem] = (),
    most: int = 20,
    jobs: Sequence[str] = (),
) -> str:
    """Format the whole status as text.

    Args:
        states: of the runs.
        problems: what could not be read.
        most: lines printed of what runs, failed or is stuck, each.
        jobs: commands of the jobs that have not ended.
    """
    parts = [_groups(states, _hiding(problems), jobs)]
    listed = {"running": _running([state for state in states if state.state == "running"])}
    for title in ("interrupted", "waiting", "failed", "stuck"):
        listed[title] = [
            f"{s.folder}: {s.reason}"
            for s in states
            if s.state == title and (s.reason or title != "waiting")
        ]
    listed["problems"] = [
        f"{problem.kind} {problem.where}: {problem.reason}" for problem in problems
    ]
    for title, lines in listed.items():
        if lines:
            remainder = [f"  and {len(lines) - most} more"] if len(lines) > most else []
            parts.append(
                "\n".join([f"\n{title}", *(f"  {line}" for line in lines[:most]), *remainder])
            )
    return "\n".join(parts)


def _hiding(problems: Sequence[Problem]) -> bool:
    return any(problem.kind in HIDING for problem in problems)


def _groups(states: Sequence[RunState], hiding: bool, jobs: Sequence[str]) -> str:
    groups: dict[str, list[RunState]] = defaultdict(list)
    for state in states:
        groups[state.group].append(state)
    lines = [["runs of", "all", *STATES, "steps/s", "time left"]]
    for name, group in [
        *sorted(groups.items()),
        *([("all", list(states))] if len(groups) > 1 else []),
    ]:
        counts = Counter(state.state for state in group)
        lines.append(
            [name, str(len(group)), *(str(counts[state]) for state in STATES), *_pace(group)]
        )
    numeric = [False] + [True] * (len(lines[0]) - 2) + [False]
    notes = [f"  {note}" for note in _notes(states, hiding, jobs)]
    total = f"{len(states)} run{'s' * (len(states) != 1)}"
    return "\n".join([total, *(aligned(lines, numeric) if states else []), *notes])


def _pace(states: Sequence[RunState]) -> list[str]:
    """Compute steps per second of all that runs, and the time that what runs and waits takes at
    that pace.
    """
    beats = [
        state.beat
        for state in states
        if state.state == "running" and state.beat and state.beat.steps_per_s
    ]
    rate = sum(beat.steps_per_s or 0.0 for beat in beats)
    if not beats or not rate:
        return ["-", ""]
    longest = max(beat.steps for beat in beats)
    waiting = [state.beat for state in states if state.state in ("interrupted", "waiting")]
    remaining = sum(beat.steps - beat.step for beat in beats)
    for beat in waiting:
        remaining += beat.steps - beat.step if beat else longest
    return [f"{rate:.0f}", duration(remaining / rate)]


def _running(states: Sequence[RunState]) -> list[str]:
    """Format one line for each process and step: the runs of a stack share one."""
    together: dict[tuple[str, int, int, int], list[RunState]] = defaultdict(list)
    for state in states:
        beat = state.beat
        if beat:
            together[beat.host, beat.pid, beat.step, beat.steps].append(state)
    lines = []
    for (host, pid, step, steps), stack in sorted(together.items()):
        label = str(stack[0].folder)
        if len(stack) > 1:
            label = f"{len(stack)} models together, e.g. {label}"
        beat = stack[0].beat
        speed = ""
        if beat and beat.seconds_left is not None:
            speed = f", {beat.steps_per_s:.1f} steps/s, {duration(beat.seconds_left)} left"
        lines.append(f"{label}: step {step} of {steps}{speed}, process {pid} on {host}")
    return lines + [f"{state.folder}: starting" for state in states if not state.beat]


def _notes(states: Sequence[RunState], hiding: bool, jobs: Sequence[str]) -> list[str]:
    counts = Counter(state.state for state in states)
    notes = []
    if jobs:
        have = "1 job of a sweep has" if len(jobs) == 1 else f"{len(jobs)} jobs of sweeps have"
        notes.append(f"{have} not ended; those that have not begun have no runs yet.")
    if counts["waiting"]:
        notes.append(f"{counts['waiting']} planned runs were not begun, or are to be resumed.")
    commands = {state.command() for state in states if state.state in ("interrupted", "stuck")}
    if not counts["running"]:
        commands |= set(map(printable, jobs))
    notes += [f"Continue with: {command}" for command in sorted(filter(None, commands))[:COMMANDS]]
    if counts["failed"]:
        notes.append("The same command with retry=failed trains the failed ones again.")
    if set(counts) == {"done"} and not jobs:
        notes.append("All that can be read is done; see the problems." if hiding else "All done.")
    return notes

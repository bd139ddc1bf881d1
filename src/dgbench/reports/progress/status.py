"""``report=status``: a sweep as it stands, once or live."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.errors import ConfigError, RecordError
from dgbench.records.status import Beat, duration
from dgbench.reports.reading.folders import HIDING, Problem, nothing_found, places, printable
from dgbench.reports.reading.run_states import STATES, RunState, expected_jobs, run_states
from dgbench.reports.tables import aligned

ALL_DONE, UNFINISHED, BROKEN = 0, 2, 3  #: exit codes; 1 is a command that cannot work

COMMANDS = 5  # that continue what was interrupted, spelled out

_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True)
class StatusReport:
    """Prints a line for every dataset, algorithm and network, then what runs, what failed and what is stuck.

    Args:
        name: of the report.
        roots: folder, or folders, searched for runs, recursively.
        is_locked: whether some process holds the lock of a run folder.
        every: seconds between two looks; None looks once.
        stuck_after: seconds without a sign of life after which a locked run is stuck.
        most: lines printed of what runs, failed or is stuck, each.
    """

    roots: str | Sequence[str]
    is_locked: Callable[[Path], bool]
    name: str = "status"
    every: float | None = None
    stuck_after: float = 600.0
    most: int = 20

    def __post_init__(self) -> None:
        for key in ("every", "stuck_after", "most"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
                raise ConfigError(f"report.{key}={value} is not a number > 0; give one")

    def show(self) -> int:
        """Print the table until nothing runs any more (once without ``every``).

        Returns:
            exit code: 0 all done; 2 something runs or waits, or may be hidden in a folder or file that cannot be
            read, or a job of a sweep has not ended; 3 something failed or is stuck.

        Raises:
            RecordError: there is not one run, and no job that is to begin any.
        """
        searched = places(self.roots)
        while True:
            states, problems = run_states(searched, time.time(), self.stuck_after, self.is_locked)
            jobs, unreadable = expected_jobs(searched)
            problems += unreadable
            if not states and not jobs:
                raise RecordError(f"{nothing_found(searched, problems)}; name folders with runs=[DIR]")
            clear = _CLEAR if self.every and sys.stdout.isatty() else ""
            print(clear + status_text(states, problems, self.most, list(jobs.values())), flush=True)
            standing = {state.state for state in states}
            if not self.every or "running" not in standing:
                if standing & {"failed", "stuck"}:
                    return BROKEN
                return ALL_DONE if standing == {"done"} and not jobs and not _hiding(problems) else UNFINISHED
            time.sleep(self.every)
            print(flush=True)


def status_text(
    states: Sequence[RunState], problems: Sequence[Problem] = (), most: int = 20, jobs: Sequence[str] = ()
) -> str:
    """Make the whole status as text.

    Args:
        states: of the runs.
        problems: what could not be read.
        most: lines printed of what runs, failed or is stuck, each.
        jobs: commands of the jobs that have not ended.
    """
    parts = [_groups(states, _hiding(problems), jobs)]
    listed = {"running": _running([state for state in states if state.state == "running"])}
    for title in ("interrupted", "waiting", "failed", "stuck"):
        listed[title] = [f"{s.folder}: {s.why}" for s in states if s.state == title and (s.why or title != "waiting")]
    listed["problems"] = [f"{problem.kind} {problem.where}: {problem.reason}" for problem in problems]
    for title, lines in listed.items():
        if lines:
            more = [f"  and {len(lines) - most} more"] if len(lines) > most else []
            parts.append("\n".join([f"\n{title}", *(f"  {line}" for line in lines[:most]), *more]))
    return "\n".join(parts)


def _hiding(problems: Sequence[Problem]) -> bool:
    return any(problem.kind in HIDING for problem in problems)


def _groups(states: Sequence[RunState], hiding: bool, jobs: Sequence[str]) -> str:
    groups: dict[str, list[RunState]] = defaultdict(list)
    for state in states:
        groups[state.group].append(state)
    lines = [["runs of", "all", *STATES, "steps/s", "time left"]]
    for name, group in [*sorted(groups.items()), *([("all", list(states))] if len(groups) > 1 else [])]:
        counts = Counter(state.state for state in group)
        lines.append([name, str(len(group)), *(str(counts[state]) for state in STATES), *_pace(group)])
    numeric = [False] + [True] * (len(lines[0]) - 2) + [False]
    notes = [f"  {note}" for note in _notes(states, hiding, jobs)]
    return "\n".join([f"{len(states)} runs", *(aligned(lines, numeric) if states else []), *notes])


def _pace(states: Sequence[RunState]) -> list[str]:
    """Steps per second of all that runs, and the time that what runs and waits takes at that pace."""
    beats = [state.beat for state in states if state.state == "running" and state.beat and state.beat.steps_per_s]
    rate = sum(beat.steps_per_s or 0.0 for beat in beats)
    if not beats or not rate:
        return ["-", ""]
    whole = max(beat.steps for beat in beats)
    waiting = [state.beat for state in states if state.state in ("interrupted", "waiting")]
    left = sum(beat.steps - beat.step for beat in beats)
    left += sum(beat.steps - beat.step if beat else whole for beat in waiting)
    return [f"{rate:.0f}", duration(left / rate)]


def _running(states: Sequence[RunState]) -> list[str]:
    """One line for each process and step: the runs of a stack share one."""
    together: dict[tuple[str, int, int, int], list[RunState]] = defaultdict(list)
    alone = []
    for state in states:
        beat = state.beat
        if beat:
            together[beat.host, beat.pid, beat.step, beat.steps].append(state)
        else:
            alone.append(f"{state.folder}: starting")
    lines = []
    for (host, pid, step, steps), stack in sorted(together.items()):
        what = str(stack[0].folder) if len(stack) == 1 else f"{len(stack)} models together, e.g. {stack[0].folder}"
        lines.append(f"{what}: step {step} of {steps}{_speed(stack[0].beat)}, process {pid} on {host}")
    return lines + alone


def _speed(beat: Beat | None) -> str:
    if beat is None or beat.seconds_left is None:
        return ""
    return f", {beat.steps_per_s:.1f} steps/s, {duration(beat.seconds_left)} left"


def _notes(states: Sequence[RunState], hiding: bool, jobs: Sequence[str]) -> list[str]:
    counts = Counter(state.state for state in states)
    notes = []
    if jobs:
        have = "1 job of a sweep has" if len(jobs) == 1 else f"{len(jobs)} jobs of sweeps have"
        notes.append(f"{have} not ended; those that have not begun have no runs yet.")
    if counts["waiting"]:
        notes.append(f"{counts['waiting']} planned runs were not begun, or are to be resumed.")
    commands = {state.command() for state in states if state.state in ("interrupted", "stuck")}
    commands |= set() if counts["running"] else {printable(typed) for typed in jobs}
    notes += [f"Continue with: {command}" for command in sorted(filter(None, commands))[:COMMANDS]]
    if counts["failed"]:
        notes.append("The same command with retry=failed trains the failed ones again.")
    if set(counts) == {"done"} and not jobs:
        notes.append("All that can be read is done; see the problems." if hiding else "All done.")
    return notes

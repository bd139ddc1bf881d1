"""``report=status``: a sweep as it stands, once or live."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.errors import ConfigError, RecordError
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.folders import Problem
from dgbench.reports.renderers.terminal import plain_table
from dgbench.reports.run_states import STATES, Beat, RunState, duration, run_states

ALL_DONE, UNFINISHED, BROKEN = 0, 2, 3  #: exit codes; 1 is a command that cannot work

_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True)
class StatusReport:
    """Prints a line for every dataset, algorithm and network, then what runs, what failed and what is stuck.

    Args:
        name: of the report.
        roots: folders searched for runs, recursively.
        is_claimed: whether some process holds the claim of a run folder.
        every: seconds between two looks; None looks once.
        stuck_after: seconds without a sign of life after which a claimed run is stuck.
        most: lines printed of what runs, failed or is stuck, each.
    """

    roots: Sequence[str]
    is_claimed: Callable[[Path], bool]
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
            exit code: 0 all done; 2 something runs or waits; 3 something failed or is stuck.

        Raises:
            RecordError: there is not one run.
        """
        places = [Path(root) for root in self.roots]
        while True:
            states, problems = run_states(places, time.time(), self.stuck_after, self.is_claimed)
            if not states:
                where = ", ".join(map(str, places)) or "an empty list of folders"
                raise RecordError(f"no runs under {where}; name folders with runs=[DIR]")
            clear = _CLEAR if self.every and sys.stdout.isatty() else ""
            print(clear + status_text(states, problems, self.most), flush=True)
            found = {state.state for state in states}
            if not self.every or "running" not in found:
                return BROKEN if found & {"failed", "stuck"} else ALL_DONE if found == {"done"} else UNFINISHED
            time.sleep(self.every)
            print(flush=True)


def status_text(states: Sequence[RunState], problems: Sequence[Problem] = (), most: int = 20) -> str:
    """All of it as text."""
    parts = [plain_table(_groups(states))]
    for title, lines in (
        ("running", _running([state for state in states if state.state == "running"])),
        ("failed", _reasons([state for state in states if state.state == "failed"])),
        ("stuck", _reasons([state for state in states if state.state == "stuck"])),
        ("problems", [f"{problem.kind} {problem.where}: {problem.reason}" for problem in problems]),
    ):
        if lines:
            more = [f"  and {len(lines) - most} more"] if len(lines) > most else []
            parts.append("\n".join([f"\n{title}", *(f"  {line}" for line in lines[:most]), *more]))
    return "\n".join(parts)


def _groups(states: Sequence[RunState]) -> Table:
    groups: dict[str, list[RunState]] = defaultdict(list)
    for state in states:
        groups[state.group].append(state)
    columns = [Column("runs of"), Column("all", "count"), *(Column(state, "count") for state in STATES)]
    columns += [Column("steps/s", "count"), Column("time left")]
    body = []
    for name, own in [*sorted(groups.items()), *([("all", list(states))] if len(groups) > 1 else [])]:
        counts = Counter(state.state for state in own)
        line = [Cell(name), Cell(float(len(own))), *(Cell(float(counts[state])) for state in STATES)]
        body.append([*line, *_pace(own)])
    return Table("status", f"{len(states)} runs", columns, body, _notes(states))


def _pace(states: Sequence[RunState]) -> list[Cell]:
    """Steps per second of all that runs, and the time that what runs and waits takes at that pace."""
    beats = [state.beat for state in states if state.state == "running" and state.beat and state.beat.rate]
    rate = sum(beat.rate or 0.0 for beat in beats)
    if not beats or not rate:
        return [Cell(), Cell("")]
    waiting = sum(state.state == "waiting" for state in states)
    left = sum(beat.steps - beat.step for beat in beats) + waiting * max(beat.steps for beat in beats)
    return [Cell(rate), Cell(duration(left / rate))]


def _running(states: Sequence[RunState]) -> list[str]:
    """One line for each process and step: the members of a stack share one."""
    together: dict[tuple[str, int, int, int], list[RunState]] = defaultdict(list)
    alone = []
    for state in states:
        beat = state.beat
        if beat:
            together[beat.host, beat.pid, beat.step, beat.steps].append(state)
        else:
            alone.append(f"{state.folder}: starting")
    lines = []
    for (host, pid, step, steps), own in sorted(together.items()):
        what = str(own[0].folder) if len(own) == 1 else f"{len(own)} models together, e.g. {own[0].folder}"
        lines.append(f"{what}: step {step} of {steps}{_speed(own[0].beat)}, process {pid} on {host}")
    return lines + alone


def _speed(beat: Beat | None) -> str:
    if beat is None or beat.seconds_left is None:
        return ""
    return f", {beat.rate:.1f} steps/s, {duration(beat.seconds_left)} left"


def _reasons(states: Sequence[RunState]) -> list[str]:
    return [f"{state.folder}: {state.why}" for state in states]


def _notes(states: Sequence[RunState]) -> list[str]:
    counts = Counter(state.state for state in states)
    notes = []
    if counts["waiting"]:
        notes.append(f"{counts['waiting']} planned runs were not begun.")
    if counts["failed"]:
        notes.append("The same command with retry=failed trains the failed ones again.")
    if set(counts) == {"done"}:
        notes.append("All done.")
    return notes

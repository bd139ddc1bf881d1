"""Keep how a run stands in its folder: its ``status``, and ``progress.json``, its sign of life.

``status`` is one line: RUNNING, DONE, FAILED with the reason, or INTERRUPTED. ``progress.json`` says how far a run is,
how fast, and when it last said so.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dgbench.records.files import read_regular, write_whole
from dgbench.records.rows import has_rows

STATUS_FILE = "status"

RUNNING, DONE, FAILED = "RUNNING", "DONE", "FAILED"
INTERRUPTED = "INTERRUPTED"  # by Ctrl-C: stopped, not failed
WORDS = (RUNNING, DONE, FAILED, INTERRUPTED)


@dataclass(frozen=True)
class Status:
    """How a run stands, as it says itself."""

    word: str = ""  #: one of :data:`WORDS`; empty where the run was never begun or its file says something else
    reason: str = ""  #: the rest of the line: why it failed, or what else the file says

    def __str__(self) -> str:
        return f"{self.word} {self.reason}".strip()


def read_status(folder: Path) -> Status:
    """The status of the run in a folder."""
    try:
        text = read_regular(folder / STATUS_FILE).decode(errors="replace")
    except OSError:
        return Status()
    word, _, reason = " ".join(text.split()).partition(" ")
    return Status(word, reason) if word in WORDS else Status("", f"status file says {text.strip()[:60]!r}")


def is_done(folder: Path) -> bool:
    """Whether the run in a folder needs no more training: it is ``DONE`` and its rows are there."""
    return read_status(folder).word == DONE and has_rows(folder)


def write_status(folder: Path, word: str, reason: str = "") -> None:
    """Replace the status, whole and, unless the run only begins, synced.

    Raises:
        OSError: it cannot be written; the old status stays.
    """
    # a power cut may take RUNNING away: such a run was not done before either
    write_whole(folder / STATUS_FILE, _line(word, reason), sync=word != RUNNING)


def mark_failed(folder: Path, reason: str) -> None:
    """Say that a run failed, also on a full disk: there the status replaces the one before it in its own place."""
    try:
        write_status(folder, FAILED, reason)
    except OSError:
        with suppress(OSError), (folder / STATUS_FILE).open("r+", encoding="utf-8") as file:
            file.write(_line(FAILED, reason))
            file.truncate()


def mark_interrupted(folder: Path) -> None:
    """Say that a run was stopped by Ctrl-C, if it was running; on a full disk the status stays as it is."""
    if read_status(folder).word == RUNNING:
        with suppress(OSError):
            write_status(folder, INTERRUPTED)


def has_lost_rows(folder: Path) -> bool:
    """Whether a run is ``DONE`` and its rows are gone: it is trained again, and not from its last checkpoint."""
    return read_status(folder).word == DONE and not has_rows(folder)


def finish(folder: Path, failure: str | None = None) -> Status:
    """Write how a run ended: ``DONE``, or ``FAILED`` for a reason; never raises for a full disk.

    Args:
        folder: of the run.
        failure: why it failed; None where it did not.

    Returns:
        What stands now. Where ``DONE`` cannot be written the run has failed for that reason.
    """
    if failure is None:
        try:
            write_status(folder, DONE)
            return Status(DONE)
        except OSError as error:
            failure = f"{type(error).__name__}: {error}"
    mark_failed(folder, failure)
    return Status(FAILED, " ".join(failure.split()))


def _line(word: str, reason: str) -> str:
    return " ".join(f"{word} {reason}".split()) + "\n"


PROGRESS_FILE = "progress.json"
_MOST = 2**31 - 1  # of steps, and of process ids


@dataclass(frozen=True, kw_only=True)
class Beat:
    """One sign of life; its keys are those of the file."""

    step: int  #: optimizer steps done
    steps: int  #: of so many
    steps_per_s: float | None  #: since training began or was resumed; None before that is known
    runs: int = 1  #: runs that train together
    time: float = field(default_factory=lambda: round(time.time(), 1))  #: Unix time
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)

    @property
    def seconds_left(self) -> float | None:
        """Until its last step, at the speed so far."""
        return (self.steps - self.step) / self.steps_per_s if self.steps_per_s else None


def write_beat(folder: Path, beat: Beat) -> None:
    """Replace the beat of a run, whole but not synced: the next is seconds away.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(folder / PROGRESS_FILE, json.dumps(asdict(beat)) + "\n", sync=False)


def read_beat(folder: Path) -> Beat | None:
    """The last beat of a run; None where there is none, or none that is whole and makes sense."""
    try:
        said = json.loads(read_regular(folder / PROGRESS_FILE))
        speed = said["steps_per_s"]
        beat = Beat(
            step=int(said["step"]),
            steps=int(said["steps"]),
            steps_per_s=None if speed is None else float(speed),
            runs=int(said.get("runs", 1)),
            time=float(said["time"]),
            pid=int(said["pid"]),
            host=str(said["host"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return beat if _is_possible(beat) else None


def _is_possible(beat: Beat) -> bool:
    """Whether numbers that a torn or foreign file may hold can be those of a run."""
    return (
        0 <= beat.step <= beat.steps <= _MOST
        and 0 < beat.pid <= _MOST
        and 0 < beat.runs <= _MOST
        and abs(beat.time) <= _MOST**2
        and (beat.steps_per_s is None or (beat.steps_per_s >= 0 and math.isfinite(beat.seconds_left or 0.0)))
        and beat.host.isprintable()
    )


def roughly(seconds: float) -> str:
    """An expected duration, no finer than it is known: ``40 s``, ``12 min``, ``3 h 10 min``."""
    if seconds < 99.5:
        return f"{round(seconds)} s"
    return f"{round(seconds / 60)} min" if seconds < 3570 else duration(max(seconds, 3600))


def duration(seconds: float) -> str:
    """``40 s``, ``2 min 05 s``, ``3 h 10 min``, ``2 d 04 h``; from 100 days on without hours, ``146 d``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days >= 100:
        return f"{days:,} d"
    if days:
        return f"{days} d {hours:02} h"
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"

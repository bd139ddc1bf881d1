"""A run's sign of life, ``progress.json`` in its folder: how far it is, how fast, and when it last said so."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dgbench.records.files import read_regular, write_whole

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

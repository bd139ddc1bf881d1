"""How a run stands, in its folder: its ``status``, and ``progress.json``, its sign of life.

``status`` is one line: RUNNING, DONE with its number of rows (``DONE at step 120, 24 rows`` of
training that may end early), FAILED with the reason, INTERRUPTED, or STOPPED by its search, with
the reason. ``progress.json`` tells how far a run is, how fast, and when it was written.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from annotated_types import Predicate
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dgbench.errors import is_divergence
from dgbench.records.evaluations import Evaluations, RowKey
from dgbench.records.files import read_json, read_regular, write_whole
from dgbench.records.rows import IDENTITY_FILE, ROW_FILE, SHIFT_FILE, parse_rows

STATUS_FILE = "status"

RUNNING = "RUNNING"
DONE = "DONE"
FAILED = "FAILED"
#: by a signal, or between the rungs of its search: to be continued, not failed
INTERRUPTED = "INTERRUPTED"
STOPPED = "STOPPED"  #: by its search, which continues with other draws
NO_ROWS = f"{ROW_FILE} is missing or holds no rows"
WORDS = (RUNNING, DONE, FAILED, INTERRUPTED, STOPPED)


@dataclass(frozen=True)
class Status:
    """How a run stands, as its folder states it."""

    #: one of :data:`WORDS`; empty if the run was never begun or its file holds something else
    word: str = ""
    #: the rest of the line: why it failed, where it ended, or what else the file holds
    reason: str = ""

    @property
    def last_step(self) -> int:
        """The step that training ended with, 0 if that is not stated."""
        return self._number(r"at step (\d{1,10})\b.*")

    @property
    def rows(self) -> int:
        """How many rows the run ended with, 0 if that is not stated."""
        return self._number(r"(?:.*, )?(\d{1,10}) rows")

    def _number(self, pattern: str) -> int:
        match = re.fullmatch(pattern, self.reason) if self.word == DONE else None
        return int(match[1]) if match else 0

    def __str__(self) -> str:
        return f"{self.word} {self.reason}".strip()


def read_status(folder: Path) -> Status:
    """Read the status of the run in a folder."""
    try:
        text = read_regular(folder / STATUS_FILE).decode(errors="replace")
    except OSError:
        return Status()
    word, _, reason = " ".join(text.split()).partition(" ")
    if word in WORDS:
        return Status(word, reason)
    return Status("", f"status file says {text.strip()[:60]!r}")


def is_done(folder: Path, evaluations: Evaluations | None = None) -> bool:
    """Return whether the run in a folder needs no more training.

    Then it is ``DONE``, and all of its rows are there.

    Args:
        folder: of a run, or of estimates of shift.
        evaluations: of the run; None takes them as :func:`lacking_rows` does.
    """
    return read_status(folder).word == DONE and not lacking_rows(folder, evaluations)


def is_settled(folder: Path) -> bool:
    """Return whether the run in a folder is over: it is done, or its loss would diverge again."""
    status = read_status(folder)
    return is_done(folder) or (status.word == FAILED and is_divergence(status.reason))


def lacking_rows(folder: Path, evaluations: Evaluations | None = None) -> str:
    """Describe what is missing among the rows of a run, in no words if nothing is.

    Args:
        folder: of the run. For estimates of shift only the presence of any is checked.
        evaluations: of the run; None takes them from what its folder says.
    """
    try:
        rows = parse_rows(read_regular(folder / ROW_FILE))[0]
    except OSError:
        with suppress(OSError):
            if (folder / SHIFT_FILE).stat().st_size:
                return ""
        return NO_ROWS
    keys: dict[str, set[RowKey]] = defaultdict(set)
    identities = {row.identity["run"]: row.identity for row in rows}
    for row in rows:
        keys[row.identity["run"]].add((row.own["step"], row.own["env"], row.own["subset"]))
    faults = (lacking_of(folder, identities[run], keys[run], evaluations) for run in identities)
    return next(filter(None, faults), "" if rows else NO_ROWS)


def trained_again(lacking: str) -> str:
    """Describe what is wrong with a ``DONE`` run that lacks rows, and what becomes of it."""
    return f"{DONE}, but {lacking}; the same command trains it again from its beginning"


def lacking_of(
    folder: Path,
    identity: Mapping[str, Any],
    rows: Collection[RowKey],
    evaluations: Evaluations | None = None,
) -> str:
    """Describe what :func:`lacking_rows` does, for a run whose row file has been read.

    Args:
        folder: of the run.
        identity: of its rows.
        rows: step, environment and subset of each, none twice.
        evaluations: as for :func:`lacking_rows`.
    """
    if evaluations is None:
        try:
            document = read_json(folder / IDENTITY_FILE)
        except (OSError, ValueError):
            document = None
        evaluations = Evaluations.recorded(document, identity)
    status = read_status(folder)
    reached = 0
    if evaluations.may_end_early:
        beat = read_beat(folder)  # an earlier version kept the step there alone
        reached = status.last_step or (beat.step if beat else 0)
    lacking = evaluations.lacking(rows, reached)
    if lacking:
        return lacking
    # if it is lost what was to be evaluated, the count still tells that something is missing
    if len(rows) < status.rows:
        return f"{status.rows - len(rows)} of its {status.rows} rows are missing"
    return ""


def write_status(folder: Path, word: str, reason: str = "") -> None:
    """Replace the status, whole and, unless the run only begins, synced.

    Raises:
        OSError: it cannot be written; the old status stays.
    """
    # a power cut may take RUNNING away: such a run was not done before either
    write_whole(folder / STATUS_FILE, _line(word, reason), sync=word != RUNNING)


def mark_failed(folder: Path, reason: str) -> None:
    """Mark a run as failed, also on a full disk.

    There the status replaces the one before it in its own place.
    """
    try:
        write_status(folder, FAILED, reason)
    except OSError:
        with suppress(OSError), (folder / STATUS_FILE).open("r+", encoding="utf-8") as file:
            file.write(_line(FAILED, reason))
            file.truncate()


def mark_interrupted(folder: Path, reason: str = "") -> None:
    """Mark a run as stopped, if it was running; on a full disk the status stays as it is.

    Args:
        folder: of the run.
        reason: what stopped it, and where; empty if that is not known.
    """
    if read_status(folder).word == RUNNING:
        with suppress(OSError):
            write_status(folder, INTERRUPTED, reason)


def finish(folder: Path, failure: str | None = None, step: int | None = None) -> Status:
    """Write how a run ended, ``DONE`` with its rows or ``FAILED`` for a reason.

    A full disk raises no error.

    Args:
        folder: of the run.
        failure: why it failed; None if it did not.
        step: that training ended with, if that is not the last of its settings anyway.

    Returns:
        What stands now. If ``DONE`` cannot be written the run has failed for that reason.
    """
    if failure is None:
        try:
            details = [] if step is None else [f"at step {step}"]
            rows = folder / ROW_FILE  # estimates of shift have none
            if rows.exists():
                details.append(f"{len(rows.read_bytes().splitlines())} rows")
            ended = Status(DONE, ", ".join(details))
            write_status(folder, ended.word, ended.reason)
            return ended
        except OSError as error:
            failure = f"{type(error).__name__}: {error}"
    mark_failed(folder, failure)
    return Status(FAILED, " ".join(failure.split()))


def _line(word: str, reason: str) -> str:
    return " ".join(f"{word} {reason}".split()) + "\n"


PROGRESS_FILE = "progress.json"
_LARGEST_COUNT = 2**31 - 1  #: of steps, and of process ids


class Beat(BaseModel):
    """One sign of life; its keys are those of the file.

    Numbers that a torn or foreign file may hold are refused.
    """

    model_config = ConfigDict(frozen=True)

    step: int = Field(ge=0)  #: optimizer steps done
    steps: int = Field(le=_LARGEST_COUNT)  #: in all
    #: since it began or was resumed; None at first
    steps_per_s: float | None = Field(ge=0, allow_inf_nan=False)
    runs: int = Field(default=1, gt=0, le=_LARGEST_COUNT)  #: runs that train together
    #: Unix time
    time: float = Field(
        default_factory=lambda: round(time.time(), 1), ge=-(_LARGEST_COUNT**2), le=_LARGEST_COUNT**2
    )
    pid: int = Field(default_factory=os.getpid, gt=0, le=_LARGEST_COUNT)
    host: Annotated[str, Predicate(str.isprintable)] = Field(default_factory=socket.gethostname)

    @model_validator(mode="after")
    def _in_time(self) -> Self:
        if self.step > self.steps or not math.isfinite(self.seconds_left or 0.0):
            raise ValueError("a step that no run reaches, or a time that is not finite")
        return self

    @property
    def seconds_left(self) -> float | None:
        """Seconds until its last step, at the speed so far; None if that is not known."""
        if not self.steps_per_s:
            return None
        return (self.steps - self.step) / self.steps_per_s


def write_beat(folder: Path, beat: Beat) -> None:
    """Replace the beat of a run, whole but not synced: the next is seconds away.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(folder / PROGRESS_FILE, json.dumps(beat.model_dump()) + "\n", sync=False)


def read_beat(folder: Path) -> Beat | None:
    """Read the last beat of a run, or return None if there is none that makes sense."""
    try:
        return Beat.model_validate(read_json(folder / PROGRESS_FILE))
    except (OSError, ValueError):
        return None


def roughly(seconds: float) -> str:
    """Format an expected duration, no finer than it is known: ``40 s``, ``3 h 10 min``."""
    if seconds < 99.5:
        return f"{round(seconds)} s"
    if seconds < 3570:
        return f"{round(seconds / 60)} min"
    return duration(max(seconds, 3600))


def duration(seconds: float) -> str:
    """Format a duration as ``40 s``, ``2 min 05 s``, ``3 h 10 min`` or ``2 d 04 h``.

    From 100 days on it is ``146 d``.
    """
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

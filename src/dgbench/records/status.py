"""The status of a run, one line in its folder: RUNNING, DONE, FAILED with the reason, or INTERRUPTED."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
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

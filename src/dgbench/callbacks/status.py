"""The status mark of a run folder: RUNNING, DONE, or FAILED with the reason."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from dgbench.records import write_whole

STATUS_FILE = "status"


def write_status(folder: Path, mark: str) -> None:
    """Replace the mark atomically: a reader sees the old one or the new one, never half."""
    write_whole(folder / STATUS_FILE, " ".join(mark.split()) + "\n")


def mark_failed(folder: Path, reason: str) -> None:
    """Mark a run as failed, also on a full disk: there the mark replaces the one before it in its own place."""
    try:
        write_status(folder, f"FAILED {reason}")
    except OSError:
        with suppress(OSError), (folder / STATUS_FILE).open("r+") as file:
            file.write(f"FAILED {' '.join(reason.split())}\n")
            file.truncate()


def read_status(folder: Path) -> str:
    """The mark, or an empty string where none was made."""
    file = folder / STATUS_FILE
    return file.read_text(errors="replace").strip() if file.is_file() else ""

"""The status mark of a run folder: RUNNING, DONE, or FAILED with the reason."""

from __future__ import annotations

import os
from pathlib import Path

STATUS_FILE = "status"


def write_status(folder: Path, mark: str) -> None:
    """Replace the mark atomically: a reader sees the old one or the new one, never half."""
    partial = folder / f"{STATUS_FILE}.partial"
    partial.write_text(" ".join(mark.split()) + "\n")
    os.replace(partial, folder / STATUS_FILE)


def read_status(folder: Path) -> str:
    """The mark, or an empty string where none was made."""
    file = folder / STATUS_FILE
    return file.read_text(errors="replace").strip() if file.is_file() else ""

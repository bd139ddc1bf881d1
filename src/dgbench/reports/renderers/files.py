"""Files that a report brings along as text."""

from __future__ import annotations

from pathlib import Path

from dgbench.reports.document import Document


def write_files(document: Document, folder: Path) -> list[Path]:
    """Write them under their own names."""
    paths = [folder / name for name in document.files]
    for path in paths:
        path.write_text(document.files[path.name], encoding="utf-8")
    return paths

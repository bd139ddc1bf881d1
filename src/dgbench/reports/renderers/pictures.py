"""Figures as PNG files."""

from __future__ import annotations

from pathlib import Path

from dgbench.reports.document import Document


def write_png(document: Document, folder: Path) -> list[Path]:
    """``<figure name>.png`` for every figure."""
    paths = []
    for section in document.sections:
        for figure in section.figures:
            paths.append(folder / f"{figure.name}.png")
            paths[-1].write_bytes(figure.png)
    return paths

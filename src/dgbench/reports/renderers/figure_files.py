"""Figures as PNG and SVG files."""

from __future__ import annotations

import re
from pathlib import Path

from dgbench.reports.document import Document

_OPEN = (
    '<?xml version="1.0" encoding="utf-8"?>\n'
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'style="color: #1c2024; background: #ffffff" '
)


def write_png(document: Document, folder: Path) -> list[Path]:
    """``<figure name>.png`` for every figure."""
    paths = []
    for section in document.sections:
        for figure in section.figures:
            paths.append(folder / f"{figure.name}.png")
            paths[-1].write_bytes(figure.png)
    return paths


def write_svg(document: Document, folder: Path) -> list[Path]:
    """``<figure name>.svg`` for every figure, dark ink on white, text as text."""
    paths = []
    for section in document.sections:
        for figure in section.figures:
            paths.append(folder / f"{figure.name}.svg")
            text = re.sub(r'<svg( style="[^"]*")? ', _OPEN, figure.svg, count=1)
            paths[-1].write_text(text, encoding="utf-8")
    return paths

"""Where decoded images lie on disk, and what is known there of images that cannot be decoded; no torch."""

from __future__ import annotations

from pathlib import Path

from dgbench.data.datasets.image_table import ImageTable
from dgbench.data.store.array_cache import notes_of

KINDS = ("auto", "ram", "file", "none")
#: version of how images are decoded, in the names of caches; 2: 16-bit gray keeps its values, pictures stand upright
DECODED = 2


def decoded_folder(table: ImageTable, side: int, cache: Path) -> Path:
    """Folder of the decoded images of a table; its name changes with the files."""
    return cache / "images" / f"{table.root.name}-{side}-{table.state(side, DECODED)}"


def known_bad(table: ImageTable, side: int | None, cache: Path) -> dict[int, str]:
    """Position -> why an image cannot be decoded, where the images were decoded before; else nothing is known."""
    if side is None:
        return {}
    return {i: why for _, _, note in notes_of(decoded_folder(table, side, cache)) for i, why in note["bad"]}

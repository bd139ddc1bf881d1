"""The official lists of NICO++ (Zhang et al., 2023, section 5): which images of each context train and which test."""

from __future__ import annotations

from pathlib import Path

from dgbench.data.datasets.image_table import SUBSETS
from dgbench.errors import DataError


def official_lists(*, root: Path, folder: str) -> list[tuple[str, str, str, str | None]]:
    """The images of ``CONTEXT_train.txt``, ``CONTEXT_test.txt``, ... in a folder below ``root``.

    A line is a path below ``root`` and a number, parted by the last blank; the class is the folder of the image, since
    the numbers differ between releases.

    Returns:
        (path, context, class, subset) of every image.

    Raises:
        DataError: no such folder, no image in it, or a line that is no path and number.
    """
    lists = root / folder
    if not lists.is_dir():
        raise DataError(
            f"{lists} is no folder of CONTEXT_train.txt and CONTEXT_test.txt; put NICO++'s official lists there, or "
            "take a tree environment/class/image with dataset.reader=null"
        )
    rows: list[tuple[str, str, str, str | None]] = []
    for file in sorted(lists.glob("*.txt")):
        context, _, subset = file.stem.rpartition("_")
        if subset not in SUBSETS:
            continue
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            path, _, label = line.strip().rpartition(" ")
            if line.strip() and ("/" not in path or not label.isdecimal()):
                raise DataError(f"{file} line {number} is no path and number: {line.strip()[:60]}; correct the list")
            if path:
                rows.append((path.removeprefix("./"), context, Path(path).parent.name, subset))
    if not rows:
        raise DataError(f"{lists} lists no image; put CONTEXT_train.txt and CONTEXT_test.txt there")
    return rows

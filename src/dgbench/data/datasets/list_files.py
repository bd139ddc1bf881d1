"""Lists that datasets are published with: text and CSV, read whole, with a fix in every refusal."""

from __future__ import annotations

import csv
from pathlib import Path

from dgbench.errors import DataError


def text_of(file: Path) -> list[str]:
    """The lines of a text.

    Raises:
        DataError: it cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file} cannot be read ({getattr(error, 'strerror', None) or error}); see python -m dgbench.data.fetch, "
            "and dataset.reader.lists=published|drawn where the dataset has it"
        ) from error


def cells_of(file: Path) -> list[list[str]]:
    """The cells of a CSV file, line by line, without empty lines.

    Raises:
        DataError: it cannot be read.
    """
    return [line for line in csv.reader(text_of(file)) if line]


def lines_of(file: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The lines of a CSV file with a heading, by column.

    Args:
        file: CSV.
        columns: that must be there.

    Raises:
        DataError: it cannot be read, lacks a column, or has a line that ends before one.
    """
    heading, *lines = cells_of(file) or [[]]
    lacking = [column for column in columns if column not in heading]
    if lacking:
        raise DataError(f"{file} has no column {lacking[0]!r} in its first line; get the published list")
    needed = 1 + max(map(heading.index, columns))
    for line in lines:
        if len(line) < needed:
            raise DataError(f"{file} has a line that is cut short, {','.join(line)[:60]!r}; get the published list")
    return [dict(zip(heading, line, strict=False)) for line in lines]

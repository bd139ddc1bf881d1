"""Columns of plain text. No pandas: a status is asked for again and again."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[str]:
    """Give every column of some lines one width.

    Args:
        lines: the head, then the values, as text.
        numeric: of each column, whether it is set to the right.
    """
    widths = [max(len(line[at]) for line in lines) for at in range(len(numeric))]
    text = []
    for line in lines:
        padded = [
            value.rjust(width) if right else value.ljust(width)
            for value, width, right in zip(line, widths, numeric, strict=True)
        ]
        text.append("  " + "  ".join(padded).rstrip())
    return text

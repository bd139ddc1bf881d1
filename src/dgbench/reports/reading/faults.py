"""What in one file is not used, apart from where the file lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.reports.reading.folders import Problem, printable

MOST_NAMED = 20  # lines of one file


@dataclass(frozen=True)
class Fault:
    """Something in a file of rows that is not used, or that a reader must know."""

    kind: str
    line: int | None  #: 1-based; 0 is the whole file, None the folder around it
    reason: str

    def in_file(self, file: Path) -> Problem:
        """As a problem of that file."""
        where = printable(file.parent if self.line is None else file)
        return Problem(self.kind, f"{where}:{self.line}" if self.line else where, self.reason)


def bounded(faults: Sequence[Fault]) -> list[Fault]:
    """Few of many faults one by one, in the order of their lines: a file of garbage must not bury everything else."""
    ordered = sorted(faults, key=lambda fault: fault.line or 0)
    more = ordered[MOST_NAMED:]
    if not more:
        return ordered
    summary = f"{len(more)} more lines, from {more[0].line} to {more[-1].line}, e.g. {more[0].kind}: {more[0].reason}"
    return [*ordered[:MOST_NAMED], Fault("more of these", 0, summary)]

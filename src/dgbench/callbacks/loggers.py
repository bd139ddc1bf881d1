"""What every logger is to training: told of one run at a time, never in the way.

The names of what is logged are the same in all of them, see docs/how_to/loggers.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from dgbench.records.metrics import ERRORS
from dgbench.records.rows import Row

log = logging.getLogger("dgbench")


@dataclass(frozen=True)
class RunInfo:
    """What a logger gets to know of a run.

    Args:
        folder: of the run.
        id: hexadecimal digits that name it, the same after a resume.
        name: for people, e.g. ``sr_cmnist-erm-mlp-s0-0123456789ab/fold-0``.
        job_type: ``fold-NAME``, or ``study``.
        group: the runs of one study share it.
        config: the whole configuration, and what to group and filter by.
        tags: dataset, algorithm, ...
    """

    folder: Path
    id: str
    name: str
    job_type: str
    group: str
    config: Mapping[str, Any]
    tags: Sequence[str] = ()


@runtime_checkable
class MetricsLogger(Protocol):
    """Shows the metrics of a run; what it raises is its own affair, see :class:`Guard`."""

    def knows(self, folder: Path) -> bool:
        """Whether it was given the run of this folder before."""

    def start(self, run: RunInfo) -> bool:
        """Open the log of a run.

        Returns:
            Whether it holds what was logged before an interruption; if not, all of it is given again.
        """

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Values by name after ``step`` optimizer steps of the open run."""

    def finish(self, failed: bool = False) -> None:
        """Close the open run."""


class CsvLog:
    """Nothing beside ``metrics.csv``, which every logger keeps."""

    def knows(self, folder: Path) -> bool:
        return True

    def start(self, run: RunInfo) -> bool:
        return True

    def log(self, step: int, values: Mapping[str, float]) -> None:
        return None

    def finish(self, failed: bool = False) -> None:
        return None


class Guard:
    """Calls what may fail, so that training continues; after the first failure, which is logged, nothing more.

    Args:
        name: what is off then.
    """

    def __init__(self, name: str) -> None:
        self.name, self.off = name, False

    def __call__(self, call: Callable[[], Any]) -> None:
        if self.off:
            return
        try:
            call()
        except Exception as error:  # whatever a logger raises
            self.off = True
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            log.warning("%s is off for the rest of this job: %s", self.name, reason)


def error_values(rows: Sequence[Row]) -> dict[str, float]:
    """The errors of one evaluation by name: each row's, and their means over training and held-out environments."""
    values = {f"{ERRORS}{row.subset}/{row.env}": row.error for row in rows}
    for name, held_out, subset in (("training_val", False, "val"), ("held_out", True, "test")):
        own = [row.error for row in rows if row.subset == subset and row.held_out == held_out]
        values |= {f"{ERRORS}{name}": sum(own) / len(own)} if own else {}
    return values

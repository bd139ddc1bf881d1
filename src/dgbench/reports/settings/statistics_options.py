"""How intervals in a report are made, and how they stand in a line."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgbench.reports.frames import entry
from dgbench.statistics import Interval


@dataclass(frozen=True)
class Statistics:
    """Settings of the bootstrap.

    Args:
        draws: number of resamples.
        level: nominal coverage of the intervals, in (0, 1).
        seed: seed of the resamples.
    """

    draws: int = 1000
    level: float = 0.95
    seed: int = 0

    def rng(self, *names: object) -> np.random.Generator:
        """The generator of one table: its numbers depend on the table's name, not on what was made before it."""
        return np.random.default_rng([self.seed, zlib.crc32("/".join(map(str, names)).encode())])

    @property
    def percent(self) -> str:
        return f"{100 * self.level:g}%"


def interval_entry(name: str, interval: Interval, n: int | None = None) -> dict[str, Any]:
    """A column's ``0.42 [0.10, 0.71]`` as part of a line."""
    return entry(name, interval.estimate, n=n, low=interval.low, high=interval.high)

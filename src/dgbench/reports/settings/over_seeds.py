"""Means over seeds and ranks over blocks: with deviations, and which lines the statistics separate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from dgbench.reports.frames import entry
from dgbench.statistics import Friedman, critical_difference, friedman, indistinct_groups, separated

BySeed = Mapping[int, float]
ErrorBar = Callable[[Sequence[float]], float | None]


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, rounded once."""
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation (divisor n-1); None for a single value."""
    if len(values) < 2:
        return None
    center = mean(values)
    return math.sqrt(math.fsum((value - center) ** 2 for value in values) / (len(values) - 1))


def over_seeds(
    name: str, by_seed: BySeed, seeds: int, reason: str = "", bar: ErrorBar = standard_deviation
) -> dict[str, Any]:
    """Mean ± error bar as part of a line, marked where fewer than ``seeds`` seeds stand behind it.

    Args:
        name: of the column.
        by_seed: seed -> value, for the seeds that have it.
        seeds: how many there should be.
        reason: why some are missing.
        bar: the error bar of the values.
    """
    values = list(by_seed.values())
    if not values:
        return entry(name, n=0, reason=reason or "no seed has this value")
    flag = f"(n={len(values)})" if len(values) != seeds else ""
    return entry(name, mean(values), std=bar(values), n=len(values), flag=flag)


def seed_column(
    name: str,
    values: Mapping[str, BySeed],
    order: Sequence[str],
    seeds: Mapping[str, int],
    reasons: Mapping[str, str],
    highest: bool = False,
    bar: ErrorBar = standard_deviation,
) -> list[dict[str, Any]]:
    """A column of means over seeds, one part of a line for each name in ``order``.

    Bold is the best line where the seeds separate it from every other one, see :func:`leader`.

    Args:
        name: of the column.
        values: line -> seed -> value.
        order: the lines.
        seeds: line -> how many seeds it should have.
        reasons: line -> why it has no value.
        highest: the highest value is the best one.
        bar: the error bar of the values.
    """
    best = leader(values, highest)
    made = []
    for line in order:
        own = over_seeds(name, values.get(line, {}), seeds.get(line, 0), reasons.get(line, ""), bar)
        made.append({**own, f"{name}.best": line == best})
    return made


def comparable(values: Mapping[str, BySeed]) -> tuple[list[str], list[int]]:
    """The lines that can be compared seed by seed: those with the seeds of a line that has most, and these seeds."""
    seeds = max((sorted(own) for own in values.values()), key=len, default=[])
    return [line for line, own in values.items() if sorted(own) == seeds], seeds


def leader(values: Mapping[str, BySeed], highest: bool = False) -> str | None:
    """The best line, where its seeds separate it from every other line with as many seeds; else None."""
    judged, seeds = comparable(values)
    if len(seeds) < 2 or len(judged) < 2:
        return None
    sign = -1.0 if highest else 1.0
    found = separated([[sign * values[line][seed] for seed in seeds] for line in judged])
    return judged[found.candidates[0]] if len(found.candidates) == 1 else None


@dataclass(frozen=True)
class Ranking:
    """Mean ranks, Friedman's test of them and Nemenyi's critical difference."""

    ranks: dict[str, float]  #: algorithm -> mean rank, 1 is the best
    test: Friedman
    difference: float  #: mean ranks that are further apart differ
    alpha: float  #: error probability of the test and of the difference

    @classmethod
    def of(cls, names: Sequence[str], blocks: ArrayLike, alpha: float = 0.05) -> Ranking:
        """Rank the algorithms within each block.

        Args:
            names: k algorithms.
            blocks: (n, k) values; lower is better.
            alpha: error probability.

        Raises:
            MeasureError: fewer than 2 blocks or 3 algorithms, a missing value, or ties throughout.
        """
        test = friedman(blocks)
        ranks = dict(zip(names, test.mean_ranks, strict=True))
        return cls(ranks, test, critical_difference(len(names), test.blocks, alpha), alpha)

    @property
    def order(self) -> list[str]:
        """The algorithms, lowest mean rank first."""
        return sorted(self.ranks, key=lambda a: (self.ranks[a], a))

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Algorithms that the test cannot tell apart; none are tied together when it finds differences everywhere."""
        return indistinct_groups(self.ranks, self.difference)

    @property
    def first(self) -> str:
        """The algorithm with the lowest mean rank."""
        return self.order[0]

    @property
    def separated(self) -> int:
        """Number of other algorithms that the test separates from the first one."""
        if self.test.p_value_f >= self.alpha:
            return 0
        return sum(rank - self.ranks[self.first] > self.difference for rank in self.ranks.values())

    @property
    def leader(self) -> str | None:
        """The first one, where the test separates it from every other."""
        return self.first if self.separated == len(self.ranks) - 1 else None

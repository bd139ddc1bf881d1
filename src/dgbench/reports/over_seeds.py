"""Means over seeds and ranks over blocks: with deviations, and which lines the statistics separate.

What tables read off the studies of one setting: values by algorithm and seed, and who may be chosen among.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dgbench.analysis import (
    Friedman,
    critical_difference,
    degradation,
    friedman,
    indistinct_groups,
    kendall,
    select,
    separated,
    spearman,
)
from dgbench.errors import MeasureError
from dgbench.reports.tables import entry

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


#: coefficients of rank correlation by name
COEFFICIENTS: dict[str, Callable[[Mapping[str, float], Mapping[str, float]], float]] = {
    "Spearman": spearman,
    "Kendall": kendall,
}
Values = dict[str, dict[int, float]]  # algorithm -> seed -> value


def seeds_of(studies: pd.DataFrame) -> list[int]:
    """The seeds that occur, sorted."""
    return sorted(set(map(int, studies["seed"].tolist())))


def algorithms_of(studies: pd.DataFrame) -> list[str]:
    """The algorithms that occur, by the alphabet."""
    return sorted(set(map(str, studies["algorithm"].tolist())))


def values(studies: pd.DataFrame, measure: str) -> Values:
    """Algorithm -> seed -> value, for the studies that have it."""
    found: Values = {}
    columns = (studies[name].tolist() for name in ("algorithm", "seed", measure))  # lists are read fastest
    for algorithm, seed, value in zip(*columns, strict=True):
        if value is not None and value == value:
            found.setdefault(str(algorithm), {})[int(seed)] = float(value)
    return found


def ranked_by(studies: pd.DataFrame) -> tuple[str, str]:
    """The measure that ranks algorithms, and its name in a sentence: the average where no study has worst+gap."""
    return ("worst_gap", "worst+gap") if values(studies, "worst_gap") else ("average", "average error")


def complete(studies: pd.DataFrame, measure: str) -> Values:
    """The values of the algorithms that have one in every seed."""
    seeds = seeds_of(studies)
    return {a: own for a, own in values(studies, measure).items() if sorted(own) == seeds}


def reasons(studies: pd.DataFrame, measure: str) -> dict[str, str]:
    """Algorithm -> why its first study without a value has none."""
    absent = studies[studies[f"{measure}.reason"].notna()]
    first = absent.drop_duplicates("algorithm")
    return {str(a): str(why) for a, why in zip(first["algorithm"], first[f"{measure}.reason"], strict=True)}


def candidates(studies: pd.DataFrame, seeds: Sequence[int]) -> list[str]:
    """Algorithms whose practical measures, and ideal where it is known at all, exist for every one of those seeds.

    Only they may be chosen among: a measure must not be blamed for missing an algorithm it could not judge. One
    candidate among several algorithms is no choice, so then there is none.
    """
    ideal = values(studies, "ideal")
    needed = [values(studies, "worst"), *([ideal] if ideal else [])]
    algorithms = algorithms_of(studies)
    pool = [a for a in algorithms if all(set(seeds) <= own.get(a, {}).keys() for own in needed)]
    return pool if len(pool) > 1 or len(algorithms) == 1 else []


def means_at(found: Values, algorithms: Sequence[str], seeds: Sequence[int]) -> dict[str, float]:
    """Mean over those seeds, for those algorithms that have a value in each."""
    whole = [a for a in algorithms if set(seeds) <= found.get(a, {}).keys()]
    return {a: mean([found[a][seed] for seed in seeds]) for a in whole}


def selected_by(studies: pd.DataFrame, measure: str, seeds: Sequence[int]) -> tuple[str, ...]:
    """The algorithms with the lowest mean over those seeds, all that tie; none where the choice cannot be made."""
    known = means_at(values(studies, measure), candidates(studies, seeds), seeds)
    return select(known) if known else ()


def selection_degradation(studies: pd.DataFrame, measure: str, seeds: Sequence[int]) -> float | None:
    """Ideal error of the selected algorithm less the lowest one, a fraction; None where one is missing."""
    chosen = selected_by(studies, measure, seeds)
    known = means_at(values(studies, "ideal"), candidates(studies, seeds), seeds)
    return degradation(known, chosen[0]) if chosen and chosen[0] in known else None


def correlations(studies: pd.DataFrame, measure: str, coefficient: str) -> tuple[dict[int, float], dict[int, str]]:
    """Rank correlation of a measure with the ideal over the algorithms that have both.

    Returns:
        Seed -> correlation, and seed -> why there is none.
    """
    own, ideal = values(studies, measure), values(studies, "ideal")
    found: dict[int, float] = {}
    why: dict[int, str] = {}
    for seed in seeds_of(studies):
        both = [a for a in own if seed in own[a] and seed in ideal.get(a, {})]
        try:
            correlate = COEFFICIENTS[coefficient]
            found[seed] = correlate({a: own[a][seed] for a in both}, {a: ideal[a][seed] for a in both})
        except MeasureError as problem:
            why[seed] = str(problem)
    return found, why


def matrices(
    studies: pd.DataFrame, measures: Sequence[str]
) -> tuple[list[str], list[int], dict[str, NDArray[np.float64]]]:
    """The algorithms that have every one of these measures for every seed, the seeds, and measure -> (A, S) values."""
    found = {measure: complete(studies, measure) for measure in measures}
    seeds = seeds_of(studies)
    names = [a for a in algorithms_of(studies) if all(a in own for own in found.values())]
    tables = {m: np.array([[own[a][seed] for seed in seeds] for a in names], dtype=float) for m, own in found.items()}
    return names, seeds, tables

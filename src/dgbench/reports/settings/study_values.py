"""What tables read off the studies of one setting: values by algorithm and seed, and who may be chosen among."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.errors import MeasureError
from dgbench.reports.settings.over_seeds import mean
from dgbench.statistics import degradation, kendall, select, spearman

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

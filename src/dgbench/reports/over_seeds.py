"""Values by algorithm and seed: means with error bars, and ranks.

Who leads: :mod:`.standing`. What measures predict of the ideal: :mod:`.predictions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dgbench.analysis import (
    Friedman,
    Measure,
    critical_difference,
    decided,
    friedman,
    indistinct_groups,
    with_most_seeds,
)
from dgbench.analysis.accuracy import mean, spread
from dgbench.plan.folds import tested_by_fold
from dgbench.plan.measures import MeasureChoice
from dgbench.reports.tables import entry


def standard_deviation(values: Sequence[float]) -> float | None:
    """Compute the sample standard deviation (divisor n-1); None for fewer than two values."""
    return spread(values, "standard_deviation") if values else None


def seeds_of(lines: pd.DataFrame) -> list[int]:
    """List the seeds that occur, sorted."""
    return sorted(set(map(int, lines["seed"].tolist())))


def algorithms_of(lines: pd.DataFrame) -> list[str]:
    """List the algorithms that occur, by the alphabet."""
    return sorted(set(map(str, lines["algorithm"].tolist())))


def by_seed(lines: pd.DataFrame, value: str, key: str = "algorithm") -> pd.DataFrame:
    """Arrange a value as a matrix of algorithm x seed, or of whatever else ``key`` names x seed.

    Args:
        lines: one per algorithm and seed.
        value: a column of theirs.
        key: the column that names the lines of the matrix.

    Returns:
        One line for each algorithm that has the value for some seed, by the alphabet; one column
        for each seed of ``lines``; NaN where there is none.
    """
    names = sorted(set(map(str, lines[key].tolist())))
    seeds = seeds_of(lines)
    row_of = {name: row for row, name in enumerate(names)}
    column_of = {seed: column for column, seed in enumerate(seeds)}
    rows = [row_of[name] for name in lines[key].tolist()]
    columns = [column_of[seed] for seed in lines["seed"].tolist()]
    values = np.full((len(names), len(seeds)), np.nan)
    values[rows, columns] = lines[value].to_numpy(dtype="float64")
    has_value = ~np.isnan(values).all(axis=1)
    return pd.DataFrame(
        values[has_value], index=pd.Index(names, dtype=object)[has_value], columns=seeds
    )


def line_values(values: pd.DataFrame, name: str) -> list[float]:
    """List the values of one line of a matrix, without those that are missing."""
    if name not in values.index:
        return []
    line: list[float] = values.to_numpy()[values.index.get_loc(name)].tolist()
    return [value for value in line if value == value]


def means(values: pd.DataFrame) -> dict[str, float]:
    """Average every line of a matrix over the seeds that it has."""
    averages = {}
    for name, line in zip(values.index, values.to_numpy().tolist(), strict=True):
        averages[str(name)] = mean([value for value in line if value == value])
    return averages


def reasons(lines: pd.DataFrame, value: str, key: str = "algorithm") -> dict[str, str]:
    """Map algorithm, or what else ``key`` names -> why its first line without a value has none."""
    first = lines[lines[f"{value}.reason"].notna()].drop_duplicates(key)
    return dict(zip(first[key], first[f"{value}.reason"], strict=True))


def over_seeds(
    name: str,
    values: Sequence[float],
    seeds: int,
    reason: str = "",
    bar: str = "standard_deviation",
) -> dict[str, Any]:
    """Make mean ± error bar over seeds part of a line, marked with n if seeds are missing.

    Args:
        name: of the column.
        values: one for each seed that has it.
        seeds: how many there should be.
        reason: why some are missing.
        bar: the error bar, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
    """
    if not values:
        return entry(name, n=0, reason=reason or "no seed has this value")
    flag = f"(n={len(values)})" if len(values) != seeds else ""
    return entry(name, mean(values), std=spread(values, bar), n=len(values), flag=flag)


def seed_columns(
    values: pd.DataFrame,
    name: str,
    order: Sequence[str],
    seeds: Mapping[str, int],
    reasons: Mapping[str, str],
    highest: bool = False,
    bar: str = "standard_deviation",
) -> pd.DataFrame:
    """Build a column of means over seeds and those beside it (``NAME.std``, ...), one line for each
    name in ``order``.

    Bold is the best line where the seeds separate it from every other one, see :func:`leader`. A
    line without a value is not ruled out, so then there is none.

    Args:
        values: line x seed.
        name: of the column.
        order: the lines.
        seeds: line -> how many seeds it should have.
        reasons: line -> why it has no value.
        highest: the highest value is the best one.
        bar: the error bar, a key of :data:`~dgbench.analysis.accuracy.SPREADS`.
    """
    best = leader(values, highest) if set(order) <= set(values.index) else None
    cells = [
        over_seeds(name, line_values(values, line), seeds.get(line, 0), reasons.get(line, ""), bar)
        for line in order
    ]
    columns = pd.DataFrame(cells, index=list(order))
    columns[f"{name}.best"] = [line == best for line in order]
    return columns


def side_by_side(order: Sequence[str], parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Join columns such as those of :func:`seed_columns` beside the algorithms of their lines."""
    joined = pd.concat([pd.DataFrame(index=list(order)), *parts], axis=1)
    # in one piece, or pandas warns of hundreds of columns, one for each environment, where one more
    # is put in front
    return joined.copy().rename_axis("algorithm").reset_index()


def seed_counts(lines: pd.DataFrame) -> dict[str, int]:
    """Count, for each algorithm, the seeds with at least one run."""
    return {
        str(name): int(count)
        for name, count in lines.groupby("algorithm")["seed"].nunique().items()
    }


def comparable(values: pd.DataFrame) -> pd.DataFrame:
    """Keep the lines with the most seeds, the same ones, and these seeds: they can be compared seed
    by seed.
    """
    present = values.notna().to_numpy()
    if not present.any():
        return values.iloc[:0, :0]
    fullest = with_most_seeds(values.to_numpy())
    lines: pd.DataFrame = values.loc[fullest, present[fullest][0]]
    return lines


def leader(values: pd.DataFrame, highest: bool = False) -> str | None:
    """Find the best line, where its seeds separate it from every other line; else None.

    Lines that lack seeds are compared over those that both have (see
    :func:`~dgbench.analysis.comparison.decided`).

    Args:
        values: line x seed, NaN where there is none. A line without any value is not ruled out.
        highest: the highest value is the best one.
    """
    if min(values.shape) < 2 or values.isna().all(axis=1).any():
        return None
    best = decided((-1.0 if highest else 1.0) * values.to_numpy())
    return None if best is None else str(values.index[best])


@dataclass(frozen=True)
class Ranking:
    """Mean ranks, Friedman's test of them and Nemenyi's critical difference."""

    ranks: dict[str, float]  #: algorithm -> mean rank, 1 is the best
    test: Friedman
    difference: float  #: mean ranks that are further apart differ
    alpha: float = 0.05  #: error probability of the test and of the difference
    in_blocks: tuple[Mapping[str, float], ...] = ()  #: of each block, algorithm -> rank

    @classmethod
    def of(cls, names: Sequence[str], blocks: ArrayLike) -> Ranking:
        """Rank the algorithms within each block.

        Args:
            names: k algorithms.
            blocks: (n, k) values; lower is better.

        Raises:
            MeasureError: fewer than 2 blocks or 3 algorithms, a missing value, or ties throughout.
        """
        test = friedman(blocks)
        ranks = dict(zip(names, test.mean_ranks, strict=True))
        difference = critical_difference(len(names), test.blocks, cls.alpha)
        in_blocks = pd.DataFrame(np.asarray(blocks, float)).rank(axis=1).to_numpy().tolist()
        by_name = [dict(zip(names, block, strict=True)) for block in in_blocks]
        return cls(ranks, test, difference, in_blocks=tuple(by_name))

    @property
    def order(self) -> list[str]:
        """The algorithms, lowest mean rank first."""
        return sorted(self.ranks, key=lambda a: (self.ranks[a], a))

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Algorithms that the test cannot tell apart.

        If it finds differences everywhere there are no such groups.
        """
        return indistinct_groups(self.ranks, self.difference)

    @property
    def first(self) -> str:
        """The algorithm with the lowest mean rank."""
        return self.order[0]

    @property
    def firsts(self) -> str:
        """``a``, or ``a = b`` where these share the lowest mean rank."""
        return " = ".join(
            name for name in self.order if math.isclose(self.ranks[name], self.ranks[self.first])
        )

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


def ranked_by(studies: pd.DataFrame, measures: MeasureChoice) -> Measure:
    """Choose the measure that ranks algorithms: the first compared one that any study has, else
    the last.
    """
    *preferred, last = measures.compared
    having = (measure for measure in preferred if studies[measure.name].notna().any())
    return next(having, last)


def complete(studies: pd.DataFrame, measures: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Map measure -> matrix, of the algorithms that have every one of these measures for every
    seed.
    """
    values = {measure: by_seed(studies, measure).dropna() for measure in measures}
    in_all = set.intersection(*(set(matrix.index) for matrix in values.values()))
    names = [name for name in algorithms_of(studies) if name in in_all]
    return {measure: matrix.loc[names] for measure, matrix in values.items()}


def only_one_environment(identity: Mapping[str, Any]) -> bool:
    """Return whether each of these runs was trained on a single given environment."""
    folds = tested_by_fold(identity) or []
    return bool(folds) and all(len(identity["given"]) - len(tests) == 1 for tests in folds)


def too_few(names: Sequence[str], count: int, needed: str) -> str:
    """Explain why there is no answer: fewer than two algorithms have what is compared."""
    if len(names) == 1:
        return f"{names[0]} alone: train another algorithm to compare it with."
    return f"{count} of {len(names)} algorithms have {needed}: nothing to compare yet."

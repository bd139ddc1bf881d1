"""Values that a published table puts side by side, judged by the error bars that it prints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgbench.analysis.accuracy import deviation_behind
from dgbench.analysis.comparison import error_of_each, welch, welch_interval
from dgbench.analysis.intervals import Interval
from dgbench.reports.published import Published, Value

ALPHA = 0.05


@dataclass(frozen=True)
class Contest:
    """Values that a table puts side by side, all with error bars."""

    paper: Published
    column: str
    names: tuple[str, ...]  #: two or more, the highest mean first
    means: tuple[float, ...]  #: in the unit of the table
    deviations: Sequence[Sequence[float]]  #: of the columns that each mean averages
    p_values: Any  #: (k, k) of Welch's test of every two

    @property
    def rivals(self) -> list[str]:
        """Those that the runs cannot separate from the highest."""
        needed = error_of_each(len(self.names), ALPHA)
        return [
            name
            for name, p in zip(self.names[1:], self.p_values[0, 1:], strict=True)
            if not p / 2 <= needed
        ]

    @property
    def beaten_by(self) -> dict[str, str]:
        """Those that the runs separate from a higher one, and the highest that they do."""
        needed = error_of_each(len(self.names), ALPHA)
        separated = np.asarray(self.p_values) / 2 <= needed
        beaten = {}
        for place, name in enumerate(self.names):
            above = np.flatnonzero(separated[:place, place])
            if above.size:
                beaten[name] = self.names[above[0]]
        return beaten

    def lead_over(self, place: int) -> Interval:
        """Compute how far the highest is above another one; the interval excludes 0 exactly if it
        is no rival.
        """
        level = 1 - 2 * error_of_each(len(self.names), ALPHA)
        return welch_interval(self.means, self.deviations, self.paper.seeds, 0, place, level)

    @property
    def pairs(self) -> list[float]:
        """P-values of every two different values."""
        index_pairs = itertools.combinations(range(len(self.names)), 2)
        return [
            float(self.p_values[a, b]) for a, b in index_pairs if self.means[a] != self.means[b]
        ]


def contests(paper: Published) -> Iterator[Contest]:
    """Yield a contest per column of accuracies and for their average; of correlations, per row and
    coefficient.
    """
    if paper.quantity == "correlation":
        kinds = dict.fromkeys(column.partition("_")[0] for column in paper.columns)
        for row, kind in itertools.product(paper.values, kinds):
            line = {
                name: value
                for name, value in paper.values[row].items()
                if name.partition("_")[0] == kind
            }
            values = {name.partition("_")[2]: [value] for name, value in line.items()}
            yield from _contest(paper, f"{row} {kind}", values)
        return
    for column in paper.columns:
        values = {row: [line[column]] for row, line in paper.values.items() if column in line}
        yield from _contest(paper, column, values)
    if len(paper.columns) > 1:
        rows = paper.averages()  # of the rows that have all columns
        yield from _contest(paper, "average", {row: [*paper.values[row].values()] for row in rows})


def averages_of(paper: Published) -> dict[str, Value]:
    """Average over the columns: row -> mean and its error, of the rows that have all columns."""
    return {
        row: Value(mean, _error_of_mean([*paper.values[row].values()]))
        for row, mean in paper.averages().items()
    }


def _error_of_mean(values: Sequence[Value]) -> float | None:
    """Combine the errors of columns, which are independent: their models share no training."""
    errors = [value.error for value in values if value.error is not None]
    return math.hypot(*errors) / len(values) if len(errors) == len(values) else None


def _contest(paper: Published, column: str, values: dict[str, list[Value]]) -> Iterator[Contest]:
    """Yield one contest of the values that have error bars, where they are two or more.

    Args:
        paper: whose values they are.
        column: in which they stand.
        values: of each name, those that its mean averages; they are independent, since their models
            share no training.
    """
    barred: dict[str, list[Value]] = {}
    mean_of: dict[str, float] = {}
    for name, line in values.items():
        if all(value.error is not None for value in line):
            barred[name] = line
            mean_of[name] = math.fsum(value.mean for value in line) / len(line)
    order = sorted(barred, key=lambda name: (-mean_of[name], name))
    if len(order) < 2:
        return
    deviations = [deviations_of(paper, barred[name], values.values()) for name in order]
    means = tuple(mean_of[name] for name in order)
    p_values = welch(means, deviations, paper.seeds)
    yield Contest(paper, column, tuple(order), means, deviations, p_values)


def deviations_of(
    paper: Published, line: Sequence[Value], column: Iterable[Sequence[Value]]
) -> list[float]:
    """Turn error bars into sample standard deviations; ± 0 is half of the last digit that its
    column prints.
    """
    deviations = []
    for place, value in enumerate(line):
        digits = max(len(f"{other[place].mean}".partition(".")[2]) for other in column)
        bar = value.error or 0.5 * 10.0**-digits
        deviations.append(deviation_behind(bar, paper.seeds, paper.bar))
    return deviations

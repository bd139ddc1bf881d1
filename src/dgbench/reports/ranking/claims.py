"""``report=claims``: how many claims of published tables survive the error bars that the tables print.

A bold number claims "best", and every order of two numbers claims "A above B". Both are judged by nothing but what is
printed: means, error bars, and how many runs stand behind them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from dgbench.analysis.accuracy import SPREADS, deviation_behind
from dgbench.analysis.comparison import error_of_each, holm, welch, welch_interval
from dgbench.analysis.intervals import Interval
from dgbench.analysis.selection import Selection
from dgbench.errors import ConfigError
from dgbench.plan.settings import FileName, Name
from dgbench.reports.document import OF_RUNS, Document, Report, Section, problem_table
from dgbench.reports.published import Published, Value, names, published
from dgbench.reports.reading.collect import Collection
from dgbench.reports.tables import Column, Table, entry, table
from dgbench.validation import Refusal

ALPHA = 0.05
ASSUMPTIONS = (
    "Runs are normal around their mean and two methods are independent: tables do not say which runs belong together, "
    "and a paired test would find more where seeds and splits are shared.",
    "± is read as the paper or its code computes it, over the runs that it states, and turned into a sample standard "
    "deviation; ± 0 is read as half of the last printed digit.",
    "Means are taken as printed. Hyperparameters, tuning on test data and whatever else the runs share are not judged.",
    "An average over columns has the degrees of freedom of all their error bars (Welch & Satterthwaite).",
)
WORDS = {
    "best": "a column's highest value, whether or not the paper says so; it survives where Welch's t-tests separate it "
    "from every other value of the column, at 5% for all of them together (Bonferroni).",
    "A above B": "two different values of a column; it survives by itself where Welch's two-sided t-test has p below "
    "5%, and with all others where it has so after Holm's correction over the pairs of the column.",
}


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
    def beaten(self) -> list[str]:
        """Those that the runs separate from a higher one, whichever that is."""
        needed = error_of_each(len(self.names), ALPHA)
        separated = np.asarray(self.p_values) / 2 <= needed
        return [name for place, name in enumerate(self.names) if separated[:place, place].any()]

    def lead_over(self, place: int) -> Interval:
        """Compute how far the highest is above another one; the interval excludes 0 exactly if it is no rival."""
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
    """Yield a contest per column of accuracies and for their average; of correlations, per row and coefficient."""
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
        values: of each name, those that its mean averages; they are independent, since their models share no training.
    """
    barred = {
        name: line
        for name, line in values.items()
        if all(value.error is not None for value in line)
    }
    mean_of = {
        name: math.fsum(value.mean for value in line) / len(line) for name, line in barred.items()
    }
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
    """Turn error bars into sample standard deviations; ± 0 is half of the last digit that its column prints."""
    deviations = []
    for place, value in enumerate(line):
        digits = max(len(f"{other[place].mean}".partition(".")[2]) for other in column)
        bar = value.error or 0.5 * 10.0**-digits
        deviations.append(deviation_behind(bar, paper.seeds, paper.bar))
    return deviations


def claims_table(papers: Sequence[Published]) -> Table:
    """Count the claims of each published table, and how many survive."""
    lines: list[dict[str, Any]] = []
    for paper in papers:
        paper_contests = list(contests(paper))
        pairs = [p for contest in paper_contests for p in contest.pairs]
        jointly = [p for contest in paper_contests if contest.pairs for p in holm(contest.pairs)]
        counts = {
            "best": len(paper_contests),
            "best survive": sum(not contest.rivals for contest in paper_contests),
            "pairs": len(pairs),
            "alone": sum(p < ALPHA for p in pairs),
            "together": sum(p < ALPHA for p in jointly),
        }
        line: dict[str, Any] = {
            "table": paper.name,
            "title": paper.title,
            "runs": float(paper.seeds),
        }
        for name, count in counts.items():
            line |= entry(name, float(count))
        lines.append(line)
    columns = [
        Column("table", key=True),
        Column("title"),
        Column("runs", unit="count", help="behind each value"),
        Column(
            "best", '"best"', "count", help="columns with two or more values that have error bars"
        ),
        Column("best survive", "survive", "count", help=WORDS["best"]),
        Column("pairs", '"A above B"', "count", help="two different values of a column"),
        Column("alone", "survive alone", "count", help="each judged by itself, p < 0.05"),
        Column(
            "together",
            "with all",
            "count",
            help="p < 0.05 after Holm's correction over the pairs of a column",
        ),
    ]
    return table(lines, "claims", "Claims of published tables", columns)


def best_table(papers: Sequence[Published]) -> Table:
    """List for each column of the tables who leads, by how much, and from whom the runs do not separate it."""
    lines: list[dict[str, Any]] = []
    for contest in itertools.chain.from_iterable(map(contests, papers)):
        first, second = contest.means[:2]
        names = contest.rivals
        lines.append(
            {"table": contest.paper.name, "column": contest.column, "best": contest.names[0]}
        )
        lines[-1] |= entry(
            "lead", (first - second) / (100 if contest.paper.quantity == "accuracy" else 1)
        )
        lines[-1] |= {"second": contest.names[1]} | entry("p", float(contest.p_values[0, 1]))
        lines[-1]["not separated"] = ", ".join(names) if len(names) < 4 else f"{len(names)} others"
    columns = [
        Column("table", key=True),
        Column("column", key=True),
        Column("best"),
        Column("second"),
        Column("lead", unit="points", help="best less second; of correlations, times 100"),
        Column("p", unit="probability", help="Welch's two-sided t-test of these two, by itself"),
        Column("not separated", help="from the best, at 5% for all of its column"),
    ]
    return table(lines, "best", "Every best value", columns, detail=True)


def _assumed_bars(papers: Sequence[Published]) -> list[str]:
    """Name the tables whose paper does not say what its error bars are, by what they are taken for."""
    names_of: dict[str, list[str]] = {}
    for paper in papers:
        if paper.assumed_bar:
            names_of.setdefault(paper.bar, []).append(paper.name)
    return [
        f"Assumed, since the paper does not say it: ± of {', '.join(tables)} is a {SPREADS[bar]}."
        for bar, tables in names_of.items()
    ]


class ClaimsReport(Report):
    """Judges published tables by their own error bars; reads no runs.

    Args:
        tables: names of published tables; None takes all that have error bars over runs.
    """

    name: FileName = "claims"
    tables: Annotated[
        Annotated[list[Name], Field(min_length=1)] | None,
        Refusal("is no list of published tables", "write e.g. [NAME], or null for all"),
    ] = Field(None)

    unread = OF_RUNS

    def __call__(
        self, collection: Collection | None, selection: Selection, split_by: str | None = None
    ) -> Document:
        having = [paper for name in names() if (paper := published(name)).bar]
        papers = having if self.tables is None else [published(name) for name in self.tables]
        if without := [paper.name for paper in papers if not paper.bar]:
            raise ConfigError(
                f"report.tables: {without[0]} prints no error bars over runs; choose from "
                f"{', '.join(paper.name for paper in having)}"
            )
        counts = claims_table(papers)
        best, survive, pairs, alone, together = (
            int(np.nansum(counts.frame[name]))
            for name in ("best", "best survive", "pairs", "alone", "together")
        )
        answer = [
            f'{survive} of {best} claims "best" in {len(papers)} published tables survive their own error bars.',
            f'Of {pairs:,} claims "A above B", {alone:,} survive alone, {together:,} with all others of their column.',
        ]
        facts = [(paper.name, f"{paper.source}; {paper.note}") for paper in papers]
        section = Section(
            "claims", "Published tables", [counts, best_table(papers)], answer=answer, facts=facts
        )
        title = "What published tables can tell"
        assumptions = [*ASSUMPTIONS, *_assumed_bars(papers)]
        return Document(
            title, "", [section], problem_table([]), assumptions, [f"{len(papers)} tables."], WORDS
        )

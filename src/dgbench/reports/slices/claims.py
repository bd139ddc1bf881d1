"""``report=claims``: how many claims survive, of published tables or of the runs of a sweep.

Claims of runs (``report.of=rows``): :mod:`.trials`. Of published tables, a bold number claims
"best", and every order of two numbers claims "A above B". Both are judged by nothing but what is
printed: means, error bars, and how many runs stand behind them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from dgbench.analysis.accuracy import SPREADS
from dgbench.analysis.comparison import holm
from dgbench.analysis.selection import Selection
from dgbench.errors import ConfigError
from dgbench.plan.needs import Need, where
from dgbench.plan.settings import FileName, Name
from dgbench.reports.document import (
    OF_RUNS,
    Document,
    ReportOfMeasures,
    Section,
    leads,
    problem_table,
)
from dgbench.reports.published import Published, names, published
from dgbench.reports.ranking.contests import ALPHA, contests
from dgbench.reports.reading.collect import Collection
from dgbench.reports.slices.trials import section_of
from dgbench.reports.tables import Column, Table, entry, table
from dgbench.reports.words import WORDS, glossary
from dgbench.validation import Count1, Refusal, Switch, shown

ASSUMPTIONS = (
    (
        "Runs are normal around their mean and two methods are independent: tables do not say "
        "which runs belong together, and a paired test would find more where seeds and splits are "
        "shared."
    ),
    (
        "± is read as the paper or its code computes it, over the runs that it states, and turned "
        "into a sample standard deviation; ± 0 is read as half of the last printed digit."
    ),
    (
        "Means are taken as printed. Hyperparameters, tuning on test data and whatever else the "
        "runs share are not judged."
    ),
    (
        "An average over columns has the degrees of freedom of all their error bars (Welch & "
        "Satterthwaite)."
    ),
)


def claims_table(papers: Sequence[Published]) -> Table:
    """Count the claims of each published table, and how many survive."""
    lines: list[dict[str, Any]] = []
    for paper in papers:
        paper_contests = list(contests(paper))
        pairs: list[float] = []
        jointly: list[float] = []
        for contest in paper_contests:
            pairs += contest.pairs
            if contest.pairs:
                jointly.extend(holm(contest.pairs))
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
    notes = [*ASSUMPTIONS, *_assumed_bars(papers)]
    return table(lines, "claims", "Claims of published tables", columns, notes)


def best_table(papers: Sequence[Published]) -> Table:
    """List for each column of the tables who leads, by how much, and from whom the runs do not
    separate it.
    """
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
    """Name the tables whose paper does not define its error bars, by what they are taken for."""
    names_of: dict[str, list[str]] = {}
    for paper in papers:
        if paper.assumed_bar:
            names_of.setdefault(paper.bar, []).append(paper.name)
    return [
        f"Assumed, since the paper does not say it: ± of {', '.join(tables)} is a {SPREADS[bar]}."
        for bar, tables in names_of.items()
    ]


class ClaimsReport(ReportOfMeasures):
    """Judges published tables by their own error bars, or the runs of a sweep by their trials.

    Args:
        of: ``published``, which reads no runs, or ``rows``.
        draws: numbers of draws of hyperparameters that are compared, of runs.
        tables: names of published tables; None takes all that have error bars over runs.
        domains: judge the tables by environment, in place of those of datasets.
    """

    name: FileName = "claims"
    tables: Annotated[
        Annotated[list[Name], Field(min_length=1)] | None,
        Refusal("is no list of published tables", "write e.g. [NAME], or null for all"),
    ] = Field(None)

    domains: Switch = False
    of: Annotated[
        Literal["published", "rows"], Refusal("judges nothing", "choose published or rows")
    ] = "published"
    draws: Annotated[
        Annotated[list[Count1], Field(min_length=1)],
        Refusal("is no list of numbers of draws", "write e.g. [1,2,5,10,20]"),
    ] = Field([1, 2, 5, 10, 20])
    needs: ClassVar[Mapping[str, Need]] = {
        **{
            f"report.{key}": Need(
                where("report.of", lambda of: of == "published"),
                "runs print no tables; leave it out",
                misleads=False,
            )
            for key in ("tables", "domains")
        },
        **{
            f"report.{key}": Need(
                where("report.of", lambda of: of == "rows"),
                "published tables have no runs; add report.of=rows",
                misleads=False,
            )
            for key in ("draws", "measures", "compared")
        },
    }

    @property
    def unread(self) -> Sequence[str]:  # type: ignore[override]
        return OF_RUNS if self.of == "published" else ("selection",)

    def __call__(
        self, collection: Collection | None, selection: Selection, split_by: str | None = None
    ) -> Document:
        if self.of == "rows":
            assert collection is not None
            return self._of_rows(collection, split_by)
        having = [paper for paper in map(published, names()) if paper.bar]
        papers = having if self.tables is None else [published(name) for name in self.tables]
        without = [paper.name for paper in papers if not paper.bar]
        if without:
            raise ConfigError(
                f"report.tables: {without[0]} prints no error bars over runs; choose from "
                f"{', '.join(paper.name for paper in having)}"
            )
        if self.domains:
            papers = [part for paper in papers for part in paper.domains]
            if not papers:
                raise ConfigError(
                    f"report.domains=true, but {shown(self.tables)} has no table by environment; "
                    "leave it out"
                )
        counts = claims_table(papers)
        best, survive, pairs, alone, together = (
            int(np.nansum(counts.frame[name]))
            for name in ("best", "best survive", "pairs", "alone", "together")
        )
        answer = [
            (
                f'{survive} of {best} claims "best" in {len(papers)} published tables survive '
                "their own error bars."
            ),
            (
                f'Of {pairs:,} claims "A above B", {alone:,} survive alone, {together:,} with all '
                "others of their column."
            ),
        ]
        facts = [(paper.name, f"{paper.source}; {paper.note}") for paper in papers]
        section = Section(
            "claims", "Published tables", [counts, best_table(papers)], answer=answer, facts=facts
        )
        title = "What published tables can tell"
        lead = [f"{len(papers)} tables."]
        words = glossary("claims")
        return Document(title, "", [section], problem_table([]), lead=lead, words=words)

    def _of_rows(self, collection: Collection, split_by: str | None) -> Document:
        """Judge the runs of a sweep."""
        section, missing = section_of(collection, split_by, self.choice, self.draws)
        problems = [*collection.problems, *missing]
        return Document(
            "What the runs of a sweep can tell",
            "",
            [section],
            problem_table(problems),
            lead=leads(f"{len(collection.runs):,} runs", problems),
            words=glossary("trials"),
        )

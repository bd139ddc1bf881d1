"""How sure the numbers of a survey are: intervals of its correlations, chance of a right pick, ranks over blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dgbench.errors import MeasureError
from dgbench.measures import (
    Friedman,
    correlation_difference,
    correlation_interval,
    critical_difference,
    friedman,
    indistinct_groups,
    pick_probability,
)
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.seed_statistics import with_best
from dgbench.reports.statistics_options import Statistics, interval_cell
from dgbench.reports.surveys import Survey, matrices

_MEASURES = {"worst_gap": "worst+gap", "average": "average"}
_ALL = ("ideal", "worst_gap", "average")


def survey_interval_table(survey: Survey, how: str, statistics: Statistics) -> Table:
    """Confidence intervals of the Spearman correlations, of their difference, and the chance of a right pick."""
    columns = [*(Column(axis, key=True) for axis in survey.axes)]
    columns += [Column(title, "correlation", f"Spearman of {title} with ideal") for title in _MEASURES.values()]
    columns += [Column("difference", "correlation", "worst+gap less average, over the same resamples")]
    for title in _MEASURES.values():
        help_text = f"probability that the pick by {title} is truly best, over resampled algorithms and seeds"
        columns.append(Column(f"P(best) {title}", "probability", help_text))
    body = []
    clear = [0, 0]
    for at, line in enumerate(survey.configurations):
        row = [Cell(line.values[axis]) for axis in survey.axes]
        names, seeds, values = matrices(line.comparison, _ALL)
        ideal = values["ideal"]
        chances = []
        table = ("survey_intervals", at)  # one generator per line, so that all its columns see the same resamples
        try:
            if not seeds or len(names) < 3:
                raise MeasureError(f"{len(names)} algorithms have all measures for every seed; 3 or more are needed")
            for measure in _MEASURES:
                found = correlation_interval(
                    values[measure], ideal, statistics.rng(*table), draws=statistics.draws, level=statistics.level
                )
                row.append(interval_cell(found, len(seeds)))
                chances.append(
                    Cell(pick_probability(values[measure], ideal, statistics.rng(*table), draws=statistics.draws))
                )
            more = correlation_difference(
                values["worst_gap"],
                values["average"],
                ideal,
                statistics.rng(*table),
                draws=statistics.draws,
                level=statistics.level,
            )
            clear[0] += more.low > 0
            clear[1] += more.high < 0
            row += [interval_cell(more, len(seeds)), *with_best(_counted(chances), highest=True)]
        except MeasureError as problem:
            row += [Cell(reason=str(problem)) for _ in range(len(columns) - len(row))]
        body.append(row)
    notes = [
        f"[low, high]: {statistics.percent} bootstrap interval; algorithms and seeds are resampled ({statistics.draws} "
        "times, percentiles), so it speaks of other algorithms and seeds like these, not of other environments.",
        f"The interval of the difference lies above 0 in {clear[0]} and below 0 in {clear[1]} of {len(body)} "
        "configurations; elsewhere these algorithms and seeds cannot tell the two measures apart.",
        "P(best): chance that the pick is truly best among resampled candidates; higher in bold.",
    ]
    title = f"How sure the correlations are ({how})"
    return Table("survey_intervals", title, columns, body, notes)


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of the algorithms by one measure, and what is needed to tell them apart."""

    measure: str
    ranks: dict[str, float]  #: algorithm -> mean rank, 1 is the lowest error
    test: Friedman
    difference: float  #: Nemenyi's critical difference
    alpha: float

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Algorithms that the test cannot tell apart; none are tied together when it finds differences everywhere."""
        return indistinct_groups(self.ranks, self.difference)


def rankings(survey: Survey, alpha: float = 0.05) -> tuple[dict[str, Ranking], str]:
    """Measure -> ranking over the configurations (each block: means over seeds), or why there is none."""
    tables = [matrices(line.comparison, _ALL) for line in survey.configurations]
    usable = [table for table in tables if len(table[0]) > 2]
    common = sorted(set.intersection(*(set(names) for names, _, _ in usable))) if usable else []
    if len(common) < 3 or len(usable) < 2:
        return {}, (
            f"{len(common)} algorithms are complete in {len(usable)} configurations; "
            "ranks need 3 or more algorithms in 2 or more"
        )
    found = {}
    for measure in _ALL:
        blocks = np.array([[v[measure][names.index(a)].mean() for a in common] for names, _, v in usable])
        try:
            test = friedman(blocks)
        except MeasureError as problem:
            return {}, str(problem)
        ranks = dict(zip(common, test.mean_ranks, strict=True))
        found[measure] = Ranking(measure, ranks, test, critical_difference(len(common), len(usable), alpha), alpha)
    return found, ""


def survey_rank_table(survey: Survey, how: str) -> Table:
    """Mean rank of every algorithm over the configurations, by ideal, worst+gap and average."""
    found, why = rankings(survey)
    titles = {"ideal": "ideal", **_MEASURES}
    columns = [Column("algorithm"), *(Column(f"rank by {titles[m]}", "rank") for m in _ALL)]
    title = f"Mean rank over configurations ({how})"
    if not found:
        return Table("survey_ranks", title, columns, [], [f"Not computed: {why}."])
    order = sorted(found["ideal"].ranks, key=lambda a: (found["ideal"].ranks[a], a))
    blocks = found["ideal"].test.blocks
    body: list[list[Cell]] = [[Cell(a)] for a in order]
    for measure in _ALL:
        cells = with_best([Cell(found[measure].ranks[a], n=blocks) for a in order])
        for row, cell in zip(body, cells, strict=True):
            row.append(cell)
    notes = [f"1 is the lowest error; a block is one of {blocks} configurations, errors are means over seeds."]
    for measure in _ALL:
        notes.append(f"{titles[measure]}: {_verdict(found[measure])}")
    notes.append("The configurations share their images, so the tests see more blocks than there is evidence.")
    return Table("survey_ranks", title, columns, body, notes)


def _verdict(ranking: Ranking) -> str:
    test = ranking.test
    text = f"Friedman chi2 = {test.statistic:.1f}, p = {test.p_value:.2g} (Iman-Davenport p = {test.p_value_f:.2g})"
    if test.p_value_f >= ranking.alpha:
        return f"{text}: no difference between the algorithms can be concluded."
    best = min(ranking.ranks, key=lambda a: (ranking.ranks[a], a))
    near = [a for a in ranking.ranks if a != best and ranking.ranks[a] - ranking.ranks[best] <= ranking.difference]
    far = len(ranking.ranks) - 1 - len(near)
    return (
        f"{text}; ranks differ where they are more than {ranking.difference:.1f} apart (Nemenyi, {ranking.alpha:g}): "
        f"{best} is told from {far} of {len(ranking.ranks) - 1} others."
    )


def _counted(cells: list[Cell]) -> list[Cell]:
    return [Cell(None, reason="too few candidates") if math.isnan(float(c.value or 0.0)) else c for c in cells]

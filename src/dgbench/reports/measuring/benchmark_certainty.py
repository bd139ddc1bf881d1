"""How sure the correlations of a benchmark are, and who ranks first over all of its settings.

Intervals, chances of a correct selection, ranks with their tests.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pandas as pd

from dgbench.analysis import (
    Statistics,
    correlation_difference,
    correlation_interval,
    pick_probability,
)
from dgbench.errors import MeasureError
from dgbench.plan.measures import IDEAL, MeasureChoice
from dgbench.reports.measuring.benchmarks import Benchmark, BenchmarkLine
from dgbench.reports.over_seeds import Ranking, complete
from dgbench.reports.tables import Column, Table, decimal, entries, entry, interval_entry, table

# name of the generator of resamples, by which it is seeded; keep it, so that intervals stay
_RESAMPLES = "survey_intervals"


def benchmark_interval_table(benchmark: Benchmark, statistics: Statistics) -> Table:
    """Compute confidence intervals of Spearman correlations and their difference, and chances of
    right selections.
    """
    titles = [measure.title for measure in benchmark.measures.compared]
    columns = [
        Column(title, unit="correlation", help=f"Spearman of {title} with ideal")
        for title in titles
    ]
    for other, column in _difference_columns(benchmark.measures).items():
        help_text = f"{titles[0]} less {other}, over the same resamples"
        columns.append(Column(column, unit="correlation", help=help_text))
    for title in titles:
        help_text = (
            f"probability that the one selected by {title} is truly best, over resampled "
            "algorithms and seeds"
        )
        columns.append(Column(f"P(best) {title}", unit="probability", help=help_text))
    lines = []
    for index, line in enumerate(benchmark.lines):
        try:
            lines.append(line.values | _intervals(line, (_RESAMPLES, index), statistics))
        except MeasureError as problem:
            lines.append(line.values | entries([column.name for column in columns], str(problem)))
    frame = pd.DataFrame(lines)
    notes = [
        (
            f"[low, high]: {statistics.percent} bootstrap interval; algorithms and seeds are "
            f"resampled ({statistics.draws} times, percentiles), so it speaks of other algorithms "
            "and seeds like these, not of other environments."
        ),
        *_on_differences(frame, benchmark.measures),
        (
            "P(best): share of the resamples in which the selected algorithm is truly best. A "
            "resample holds about two thirds of the algorithms, so the chance among all of them "
            "is lower (docs/concepts/statistics.md)."
        ),
    ]
    axes = [Column(axis, key=True) for axis in benchmark.axes]
    return table(
        frame, "suite_intervals", "How sure the correlations are", [*axes, *columns], notes
    )


def _difference_columns(measures: MeasureChoice) -> dict[str, str]:
    """Map the title of each compared measure after the first -> the column of its difference."""
    _, *others = [measure.title for measure in measures.compared]
    columns = {title: f"difference to {title}" for title in others}
    if others:
        columns[others[0]] = "difference"
    return columns


def _on_differences(frame: pd.DataFrame, measures: MeasureChoice) -> list[str]:
    """Count the settings in which an interval of a difference excludes 0."""
    sentences = []
    for place, (title, column) in enumerate(_difference_columns(measures).items()):
        above, below = 0, 0
        if f"{column}.low" in frame:
            above = int((frame[f"{column}.low"] > 0).sum())
            below = int((frame[f"{column}.high"] < 0).sum())
        which = f" to {title}" if place else ""
        sentences.append(
            f"The interval of the difference{which} lies above 0 in {above} and below 0 in {below} "
            f"of {len(frame)} settings; elsewhere these algorithms and seeds cannot tell the two "
            "measures apart."
        )
    return sentences


def _intervals(
    line: BenchmarkLine, table_seed: tuple[object, ...], statistics: Statistics
) -> dict[str, Any]:
    """Compute the intervals of one setting; ``table_seed`` makes all of them see the same
    resamples.
    """
    measures = line.evaluation.measures
    matrices = complete(line.studies, [measure.name for measure in measures.ranked])
    values = {name: matrix.to_numpy() for name, matrix in matrices.items()}
    ideal = values[IDEAL]
    draws = statistics.draws
    level = statistics.level
    algorithms, seeds = ideal.shape
    if not seeds or algorithms < 3:
        raise MeasureError(
            f"{algorithms} algorithms have all measures for every seed; 3 or more are needed"
        )
    cells: dict[str, Any] = {}
    for measure in measures.compared:
        of_measure = values[measure.name]
        rho = correlation_interval(
            of_measure, ideal, statistics.rng(*table_seed), draws=draws, level=level
        )
        chance = pick_probability(of_measure, ideal, statistics.rng(*table_seed), draws=draws)
        cells |= interval_entry(measure.title, rho, seeds)
        known = None if math.isnan(chance) else chance
        cells |= entry(f"P(best) {measure.title}", known, reason="too few candidates")
    first, *others = measures.compared
    columns = _difference_columns(measures)
    for other in others:
        difference = correlation_difference(
            values[first.name],
            values[other.name],
            ideal,
            statistics.rng(*table_seed),
            draws=draws,
            level=level,
        )
        cells |= interval_entry(columns[other.title], difference, seeds)
    return cells


def benchmark_rank_table(benchmark: Benchmark) -> Table:
    """List the mean rank of every algorithm over the settings, by the ideal and each compared
    measure.
    """
    ranked, reason = benchmark.rankings
    columns = [
        Column("algorithm", key=True),
        *(Column(m.name, f"rank by {m.title}", "rank") for m in benchmark.measures.ranked),
    ]
    title = "Mean rank over settings"
    if not ranked:
        return table([], "suite_ranks", title, columns, [f"Not computed: {reason}."])
    blocks = ranked[IDEAL].test.blocks
    lines = []
    for algorithm in ranked[IDEAL].order:
        cells: dict[str, Any] = {"algorithm": algorithm}
        for name, ranking in ranked.items():
            leads = algorithm == ranking.leader
            cells |= entry(name, ranking.ranks[algorithm], n=blocks, best=leads)
        lines.append(cells)
    notes = [
        f"1 is the lowest error; ranks in {blocks} settings (blocks), of mean errors over seeds."
    ]
    for measure in benchmark.measures.ranked:
        notes.append(f"{measure.title}: {_verdict(ranked[measure.name])}")
    notes.append(
        "The settings share their images, so the tests see more blocks than there is evidence."
    )
    made = table(lines, "suite_ranks", title, columns, notes)
    return replace(made, shown_notes=1)


def _verdict(ranking: Ranking) -> str:
    test = ranking.test
    statistic, difference = decimal(test.statistic, 1), decimal(ranking.difference, 1)
    text = (
        f"Friedman chi2 = {statistic}, p = {test.p_value:.2g} (Iman-Davenport p = "
        f"{test.p_value_f:.2g})"
    )
    if test.p_value_f >= ranking.alpha:
        return f"{text}: no difference between the algorithms can be concluded."
    return (
        f"{text}; ranks differ where they are more than {difference} apart (Nemenyi, "
        f"{ranking.alpha:g}): {ranking.first} is separated from {ranking.separated} of "
        f"{len(ranking.ranks) - 1} others."
    )

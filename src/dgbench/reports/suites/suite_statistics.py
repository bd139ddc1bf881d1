"""How sure the numbers of a suite are: intervals of its correlations, chance of a correct selection, ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from dgbench.errors import MeasureError
from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.settings.over_seeds import Ranking
from dgbench.reports.settings.statistics_options import Statistics, interval_entry
from dgbench.reports.settings.study_values import matrices
from dgbench.reports.suites.suites import Suite, SuiteLine
from dgbench.statistics import correlation_difference, correlation_interval, pick_probability

#: names the generator of resamples: another word would change every interval
_RESAMPLES = "survey_intervals"
_MEASURES = {"worst_gap": "worst+gap", "average": "average"}
#: the measures that algorithms are ranked by
RANKED_BY = {"ideal": "ideal", **_MEASURES}
_ALL = tuple(RANKED_BY)


def suite_interval_table(suite: Suite, statistics: Statistics) -> Table:
    """Confidence intervals of the Spearman correlations, of their difference, and the chance of a correct selection."""
    columns = [*(Column(axis, key=True) for axis in suite.axes)]
    columns += [
        Column(title, unit="correlation", help=f"Spearman of {title} with ideal") for title in _MEASURES.values()
    ]
    columns += [Column("difference", unit="correlation", help="worst+gap less average, over the same resamples")]
    for title in _MEASURES.values():
        help_text = f"probability that the one selected by {title} is truly best, over resampled algorithms and seeds"
        columns.append(Column(f"P(best) {title}", unit="probability", help=help_text))
    lines = []
    for at, line in enumerate(suite.lines):
        own: dict[str, Any] = {axis: line.values[axis] for axis in suite.axes}
        try:
            own |= _intervals(line, (_RESAMPLES, at), statistics)
        except MeasureError as problem:
            for column in columns[len(suite.axes) :]:
                own |= entry(column.name, reason=str(problem))
        lines.append(own)
    made = pd.DataFrame(lines)
    above = int((made["difference.low"] > 0).sum()) if "difference.low" in made else 0
    below = int((made["difference.high"] < 0).sum()) if "difference.high" in made else 0
    notes = [
        f"[low, high]: {statistics.percent} bootstrap interval; algorithms and seeds are resampled ({statistics.draws} "
        "times, percentiles), so it speaks of other algorithms and seeds like these, not of other environments.",
        f"The interval of the difference lies above 0 in {above} and below 0 in {below} of {len(lines)} settings; "
        "elsewhere these algorithms and seeds cannot tell the two measures apart.",
        "P(best): share of the resamples in which the selected algorithm is truly best. A resample holds about two "
        "thirds of the algorithms, so the chance among all of them is lower (docs/concepts/statistics.md).",
    ]
    return table(made, "suite_intervals", "How sure the correlations are", columns, notes)


def _intervals(line: SuiteLine, table_seed: tuple[object, ...], statistics: Statistics) -> dict[str, Any]:
    """The intervals of one setting; ``table_seed`` makes all of them see the same resamples."""
    names, seeds, values = matrices(line.studies, _ALL)
    if not seeds or len(names) < 3:
        raise MeasureError(f"{len(names)} algorithms have all measures for every seed; 3 or more are needed")
    ideal, draws, level = values["ideal"], statistics.draws, statistics.level
    own: dict[str, Any] = {}
    for measure, title in _MEASURES.items():
        found = correlation_interval(values[measure], ideal, statistics.rng(*table_seed), draws=draws, level=level)
        chance = pick_probability(values[measure], ideal, statistics.rng(*table_seed), draws=draws)
        own |= interval_entry(title, found, len(seeds))
        few = math.isnan(chance)
        own |= entry(f"P(best) {title}", None if few else chance, reason="too few candidates" if few else "")
    more = correlation_difference(
        values["worst_gap"], values["average"], ideal, statistics.rng(*table_seed), draws=draws, level=level
    )
    return own | interval_entry("difference", more, len(seeds))


def rankings(suite: Suite, alpha: float = 0.05) -> tuple[dict[str, Ranking], str]:
    """Measure -> ranking over the settings (each block: means over seeds), or why there is none."""
    tables = [matrices(line.studies, _ALL) for line in suite.lines]
    usable = [each for each in tables if len(each[0]) > 2]
    common = sorted(set.intersection(*(set(names) for names, _, _ in usable))) if usable else []
    if len(common) < 3 or len(usable) < 2:
        return {}, (
            f"{len(common)} algorithms are complete in {len(usable)} settings; "
            "ranks need 3 or more algorithms in 2 or more"
        )
    found = {}
    for measure in _ALL:
        blocks = np.array([[v[measure][names.index(a)].mean() for a in common] for names, _, v in usable])
        try:
            found[measure] = Ranking.of(common, blocks, alpha)
        except MeasureError as problem:
            return {}, str(problem)
    return found, ""


def suite_rank_table(suite: Suite) -> Table:
    """Mean rank of every algorithm over the settings, by ideal, worst+gap and average."""
    found, why = rankings(suite)
    columns = [Column("algorithm", key=True), *(Column(m, f"rank by {RANKED_BY[m]}", "rank") for m in _ALL)]
    title = "Mean rank over settings"
    if not found:
        return table([], "suite_ranks", title, columns, [f"Not computed: {why}."])
    order = sorted(found["ideal"].ranks, key=lambda a: (found["ideal"].ranks[a], a))
    lines = []
    for algorithm in order:
        own: dict[str, Any] = {"algorithm": algorithm}
        for measure in _ALL:
            ranking = found[measure]
            own |= entry(measure, ranking.ranks[algorithm], n=ranking.test.blocks, best=algorithm == ranking.leader)
        lines.append(own)
    blocks = found["ideal"].test.blocks
    notes = [f"1 is the lowest error; a block is one of {blocks} settings, errors are means over seeds."]
    notes += [f"{RANKED_BY[measure]}: {_verdict(found[measure])}" for measure in _ALL]
    notes.append("The settings share their images, so the tests see more blocks than there is evidence.")
    return table(lines, "suite_ranks", title, columns, notes)


def _verdict(ranking: Ranking) -> str:
    test = ranking.test
    text = f"Friedman chi2 = {test.statistic:.1f}, p = {test.p_value:.2g} (Iman-Davenport p = {test.p_value_f:.2g})"
    if test.p_value_f >= ranking.alpha:
        return f"{text}: no difference between the algorithms can be concluded."
    return (
        f"{text}; ranks differ where they are more than {ranking.difference:.1f} apart (Nemenyi, {ranking.alpha:g}): "
        f"{ranking.first} is separated from {ranking.separated} of {len(ranking.ranks) - 1} others."
    )

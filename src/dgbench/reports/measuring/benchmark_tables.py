"""Tables over the settings of a benchmark (Hwang et al. 2024, Tables 1-6).

Rank correlations of the measures with the ideal one; what each measure selects and what that costs;
how sure these are: intervals, chance of a correct selection, ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import (
    Statistics,
    correlation_difference,
    correlation_interval,
    pick_probability,
    sign_test,
)
from dgbench.analysis.accuracy import mean
from dgbench.errors import MeasureError
from dgbench.plan.measures import IDEAL, MeasureChoice
from dgbench.records.rows import Role, keys
from dgbench.reports.measuring.benchmarks import Benchmark, BenchmarkLine
from dgbench.reports.over_seeds import COEFFICIENTS, Ranking, complete, leader, over_seeds
from dgbench.reports.tables import Column, Table, decimal, entries, entry, interval_entry, table

#: what must be equal for datasets to share an average
_SAME = ("evaluation", *(key for key in keys(Role.NETWORK | Role.PROTOCOL) if key != "backbone"))
# names the generator of resamples: another word would change every interval
_RESAMPLES = "survey_intervals"


def settings_table(
    benchmark: Benchmark, lines: Sequence[Mapping[str, Any]], name: str, title: str, columns: Sequence[Column],
    notes: Sequence[str], detail: bool = False,
) -> Table:  # fmt: skip
    """Build a table whose lines begin with the values that name a setting."""
    axes = [Column(axis, key=True) for axis in benchmark.axes]
    keys = [*axes, Column("N", unit="count", help="given environments", key=True)]
    return table(lines, name, title, [*keys, *columns], notes, detail)


def _correlation_columns(measures: MeasureChoice) -> list[Column]:
    """List a column for each coefficient and measure."""
    titles = [measure.in_correlations for measure in measures.predicting]
    return [
        Column(
            f"{coefficient} {title}", unit="correlation", help=f"{coefficient}: {title} with ideal"
        )
        for coefficient in COEFFICIENTS
        for title in titles
    ]


def benchmark_correlation_table(benchmark: Benchmark) -> Table:
    """List, for each setting, each measure's rank correlation with the ideal one, mean ± std over
    seeds.
    """
    lines = []
    measures = benchmark.measures.predicting
    for line in benchmark.lines:
        cells: dict[str, Any] = {**line.values, "N": line.count}
        for coefficient in COEFFICIENTS:
            rhos = {m.name: line.correlations[coefficient, m.name][0] for m in measures}
            best = leader(pd.DataFrame.from_dict(rhos, orient="index"), highest=True)
            for measure in measures:
                rho, reason = line.correlations[coefficient, measure.name]
                name = f"{coefficient} {measure.in_correlations}"
                cells |= over_seeds(name, [*rho.values()], len(line.seeds), reason)
                cells[f"{name}.best"] = measure.name == best
        lines.append(cells)
    title = "Rank correlation with the ideal measure, every setting"
    notes = _on_correlation(benchmark, pd.DataFrame(lines))
    columns = _correlation_columns(benchmark.measures)
    return settings_table(benchmark, lines, "suite_correlation", title, columns, notes)


def _on_correlation(benchmark: Benchmark, lines: pd.DataFrame) -> list[str]:
    """Say what the correlations of the settings (Table 1) support."""
    count = len(benchmark.seeds)
    over = (
        f"mean ± standard deviation (divisor n-1) over {count} seeds"
        if count > 1
        else "1 seed, no deviation"
    )
    sentences = [
        (
            f"1: the measure orders the {len(benchmark.algorithms)} algorithms as the ideal one "
            f"does; {over}. Bold: highest of a line and coefficient, where the seeds separate it "
            "from the others; negative underlined."
        )
    ]
    first, *others = benchmark.measures.compared
    for name in COEFFICIENTS:
        for other in others:
            columns = [f"{name} {measure.in_correlations}" for measure in (first, other)]
            pairs = lines[columns].astype("float64").dropna()
            if not len(pairs):
                sentences.append(
                    f"{name}: no setting has both {first.title} and {other.title}; nothing can be "
                    "concluded."
                )
                continue
            ahead = pairs[columns[0]] - pairs[columns[1]]
            wins, losses = int((ahead > 0).sum()), int((ahead < 0).sum())
            sentences.append(
                f"{name}: {first.title} correlates better than {other.title} in {wins} of "
                f"{len(pairs)} settings, which is {chance_words(wins, losses)}."
            )
    return sentences


def chance_words(wins: int, losses: int) -> str:
    """Describe the two-sided sign test over the cases that do not tie, in words."""
    if not wins + losses:
        return "a tie throughout"
    p = sign_test(wins, losses)
    verdict = "more than chance" if p < 0.05 else "no more than chance may do"
    return f"{verdict} (sign test, p = {p:.2g})"


def benchmark_seed_table(benchmark: Benchmark) -> Table:
    """List the correlations of :func:`benchmark_correlation_table` by setting and seed, as in
    Tables 3 and 4.
    """
    lines = []
    for line in benchmark.lines:
        for seed in line.seeds:
            cells = {**line.values, "N": line.count, "seed": seed}
            for coefficient in COEFFICIENTS:
                for measure in benchmark.measures.predicting:
                    rho, problem = line.correlations[coefficient, measure.name]
                    name = f"{coefficient} {measure.in_correlations}"
                    cells |= entry(name, rho.get(seed), n=1, reason=problem or "not computed")
            lines.append(cells)
    columns = [
        Column("seed", unit="count", key=True),
        *_correlation_columns(benchmark.measures),
    ]
    title = "Rank correlation with the ideal measure, every seed"
    notes = ["Negative ones are underlined."]
    return settings_table(
        benchmark, lines, "suite_correlation_seeds", title, columns, notes, detail=True
    )


def benchmark_tables(
    benchmark: Benchmark, statistics: Statistics, beside_paper: Sequence[Table] = ()
) -> list[Table]:
    """Build all tables of one benchmark, those to read first in front.

    Args:
        benchmark: of several settings.
        statistics: settings of the bootstrap.
        beside_paper: tables that compare it with a paper's.
    """
    return [
        benchmark_rank_table(benchmark),
        benchmark_hit_table(benchmark),
        benchmark_selection_table(benchmark),
        benchmark_correlation_table(benchmark),
        benchmark_interval_table(benchmark, statistics),
        *beside_paper,
        benchmark_seed_table(benchmark),
    ]


def overview_table(benchmarks: Sequence[Benchmark]) -> Table:
    """List the correlations of each benchmark, mean ± std over settings; below, the average over
    datasets.
    """
    lines: list[dict[str, Any]] = []
    measures = benchmarks[0].measures
    for benchmark in benchmarks:
        cells: dict[str, Any] = {"dataset": benchmark.title, "settings": len(benchmark.lines)}
        settings = [] if benchmark.refused else benchmark.lines
        for coefficient in COEFFICIENTS:
            for measure in measures.predicting:
                correlations = [line.correlations[coefficient, measure.name] for line in settings]
                levels = [mean(list(rho.values())) for rho, _ in correlations if rho]
                reasons = (reason for _, reason in correlations if reason)
                reason = benchmark.refused or next(reasons, "")
                name = f"{coefficient} {measure.in_correlations}"
                cells |= over_seeds(name, levels, len(benchmark.lines), reason)
        lines.append(cells)
    notes = [
        (
            "Mean over seeds, then mean ± standard deviation over settings; n marks those that "
            "have a value."
        )
    ]
    if len(benchmarks) > 1:
        conflict = _why_no_average(benchmarks)
        cells = {
            "dataset": "average",
            "settings": sum(len(benchmark.lines) for benchmark in benchmarks),
        }
        for column in _correlation_columns(measures):
            values = [line[column.name] for line in lines if line[column.name] is not None]
            whole = not conflict and len(values) == len(lines)
            reason = conflict or "a dataset has none"
            cells |= entry(
                column.name, mean(values) if whole else None, n=len(values), reason=reason
            )
        lines.append(cells)
        notes.append(
            f"No average over the lines: {conflict}."
            if conflict
            else "average: every dataset counts once."
        )
    columns = [
        Column("dataset", key=True),
        Column("settings", unit="count"),
        *_correlation_columns(measures),
    ]
    return table(
        lines, "overview", "Rank correlation with the ideal measure, per dataset", columns, notes
    )


def _why_no_average(benchmarks: Sequence[Benchmark]) -> str:
    """Say why benchmarks must not share an average; empty where they may."""
    for key in _SAME:
        values = sorted({str(benchmark.identity[key]) for benchmark in benchmarks})
        if len(values) > 1:
            return f"they differ in {key} ({', '.join(values)})"
    datasets = [benchmark.identity["dataset"] for benchmark in benchmarks]
    if twice := sorted({name for name in datasets if datasets.count(name) > 1}):
        return (
            f"{', '.join(twice)} stands in more than one line (other base images, network or seeds)"
        )
    codes = sorted(
        {
            code
            for benchmark in benchmarks
            for line in benchmark.lines
            for code in line.setting.codes
        }
    )
    return (
        f"they come from {len(codes)} code versions ({', '.join(codes)})" if len(codes) > 1 else ""
    )


def benchmark_selection_table(benchmark: Benchmark) -> Table:
    """List the algorithm that each measure selects, per seed and on the mean over seeds (Table 6)."""
    groups: dict[int | None, str] = {
        **{seed: f"seed {seed}" for seed in benchmark.seeds},
        None: "mean",
    }
    lines = []
    for line in benchmark.lines:
        cells: dict[str, Any] = {**line.values, "N": line.count}
        for seed, group in groups.items():
            untrained = set(benchmark.seeds if seed is None else [seed]) - set(line.seeds)
            problem = "fewer than 2 algorithms have this measure and the ideal one for these seeds"
            if untrained:
                problem = (
                    f"seed {', '.join(map(str, sorted(untrained)))} was not trained in this setting"
                )
            truly = () if untrained else line.selections[IDEAL, seed].names
            for measure in benchmark.measures.ranked:
                selected = () if untrained else line.selections[measure.name, seed].names
                right = measure.name != IDEAL and bool(selected) and selected[0] in truly
                cells |= entry(
                    f"{group}: {measure.title}",
                    " = ".join(selected) or None,
                    best=right,
                    reason=problem,
                )
        lines.append(cells)
    titles = [measure.title for measure in benchmark.measures.ranked]
    columns = [Column(f"{group}: {title}") for group in groups.values() for title in titles]
    notes = [
        "Bold: the same algorithm as by the ideal measure, which alone knows all environments. "
        "mean: the algorithm selected on the mean over seeds. Ties are shown as a = b.",
        *(
            []
            if len(benchmark.seeds) > 1
            else ["1 seed: a selection may be the luck of that seed."]
        ),
    ]
    return settings_table(
        benchmark,
        lines,
        "suite_selected",
        "Algorithm each measure selects, every setting",
        columns,
        notes,
    )


def selection_costs(benchmark: Benchmark) -> pd.DataFrame:
    """Compute what each selection costs, one line per measure, setting and seed (or their mean).

    Returns:
        Columns ``measure``, ``line`` (position of the setting), ``seed`` (None: on the mean over
        seeds), ``degradation`` (ideal error of the selected algorithm less the lowest one, a
        fraction).
    """
    predicting = {measure.name for measure in benchmark.measures.predicting}
    lines = [
        {"measure": name, "line": position, "seed": seed, "degradation": chosen.cost}
        for position, line in enumerate(benchmark.lines)
        for (name, seed), chosen in line.selections.items()
        if chosen.cost is not None and name in predicting
    ]
    frame = pd.DataFrame(lines, columns=["measure", "line", "seed", "degradation"])
    return frame.astype({"seed": "Int64", "degradation": "float64"})


def correct_selections(benchmark: Benchmark) -> pd.DataFrame:
    """Count how often the compared measures select the truly best algorithm, where settings have
    ideal errors.

    Returns:
        By measure: ``right`` (selections that are truly best), ``number`` (selections, one per
        setting and seed) and ``cost`` (mean degradation, a fraction).
    """
    costs = selection_costs(benchmark).dropna(subset="seed").groupby("measure")["degradation"]
    correct = costs.agg(
        right=lambda degradations: (degradations == 0).sum(), number="size", cost="mean"
    )
    compared = [measure.name for measure in benchmark.measures.compared]
    return pd.DataFrame(correct).reindex(compared).dropna()


def benchmark_hit_table(benchmark: Benchmark) -> Table:
    """Count how often each measure selects the truly best algorithm, and what its selections cost."""
    columns = [
        Column("measure", key=True),
        Column(
            "truly best",
            unit="count",
            help="selections with the lowest ideal error, over settings x seeds",
        ),
        Column(
            "truly best on the mean",
            unit="count",
            help="the same on the mean over seeds, over settings",
        ),
        Column("degradation", unit="points", help="ideal error of it less the lowest, mean ± std"),
        Column("largest degradation", unit="points", help="the costliest single selection"),
    ]
    costs = selection_costs(benchmark)
    lines = []
    for measure in benchmark.measures.predicting:
        title = measure.in_correlations
        rows = costs[costs["measure"] == measure.name]
        on_mean = rows["seed"].isna()
        single = rows.loc[~on_mean, "degradation"].tolist()
        if not single:
            names = [column.name for column in columns[1:]]
            lines.append({"measure": title} | entries(names, "no setting has ideal errors"))
            continue
        cells: dict[str, Any] = {"measure": title}
        for column, losses in zip(
            columns[1:3], (single, rows.loc[on_mean, "degradation"].tolist()), strict=True
        ):
            right = losses.count(0.0)
            cells |= entry(column.name, float(right), n=len(losses), flag=f"of {len(losses)}")
        cells |= over_seeds("degradation", single, len(single))
        lines.append(cells | entry("largest degradation", max(single), n=len(single)))
    title = "How often each measure selects the truly best algorithm"
    return table(lines, "suite_hits", title, columns, _on_hits(benchmark, costs))


def _on_hits(benchmark: Benchmark, costs: pd.DataFrame) -> list[str]:
    """Say how to read the hit table, and what the selections by the first compared measure cost
    against those by the others.
    """
    count = len(benchmark.algorithms)
    sentences = [
        (
            f"A blind guess among {count} algorithms is right once in {count}. Degradation 0: "
            "truly best. Over settings and seeds, which are no independent trials: seeds share "
            "their setting's environments."
        )
    ]
    single = costs[costs["seed"].notna()].pivot(
        index=["line", "seed"], columns="measure", values="degradation"
    )
    first, *others = benchmark.measures.compared
    for other in others:
        if not {first.name, other.name} <= set(single.columns):
            continue
        pairs = single[[first.name, other.name]].dropna()
        difference = pairs[first.name] - pairs[other.name]
        better, worse = int((difference < 0).sum()), int((difference > 0).sum())
        by_setting = difference.groupby("line").sum()
        wins, losses = int((by_setting < 0).sum()), int((by_setting > 0).sum())
        sentences += [
            (
                f"{first.title} selects a better algorithm than {other.title} in {better} of "
                f"{len(pairs)} cases, a worse one in {worse} and an equally good one in "
                f"{len(pairs) - better - worse}."
            ),
            (
                f"Counted by setting, its selections cost less in {wins} and more in {losses} of "
                f"{len(by_setting)}, which is {chance_words(wins, losses)}."
            ),
        ]
    return sentences


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
    ideal, draws, level = values[IDEAL], statistics.draws, statistics.level
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


def rankings(benchmark: Benchmark) -> tuple[dict[str, Ranking], str]:
    """Rank algorithms over the settings (each block: means over seeds): measure -> ranking, or why
    there is none.
    """
    names = [measure.name for measure in benchmark.measures.ranked]
    matrices = [complete(line.studies, names) for line in benchmark.lines]
    usable = [by_measure for by_measure in matrices if len(by_measure[IDEAL]) > 2]
    indices = [set(by_measure[IDEAL].index) for by_measure in usable]
    common = sorted(set.intersection(*indices)) if indices else []
    if len(common) < 3 or len(usable) < 2:
        return {}, (
            f"{len(common)} algorithms are complete in {len(usable)} settings; "
            "ranks need 3 or more algorithms in 2 or more"
        )
    ranked = {}
    for measure in names:
        blocks = np.array(
            [by_measure[measure].loc[common].to_numpy().mean(axis=1) for by_measure in usable]
        )
        try:
            ranked[measure] = Ranking.of(common, blocks)
        except MeasureError as problem:
            return {}, str(problem)
    return ranked, ""


def benchmark_rank_table(benchmark: Benchmark) -> Table:
    """List the mean rank of every algorithm over the settings, by the ideal and each compared
    measure.
    """
    ranked, reason = rankings(benchmark)
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
        f"1 is the lowest error; a block is one of {blocks} settings, errors are means over seeds."
    ]
    for measure in benchmark.measures.ranked:
        notes.append(f"{measure.title}: {_verdict(ranked[measure.name])}")
    notes.append(
        "The settings share their images, so the tests see more blocks than there is evidence."
    )
    return table(lines, "suite_ranks", title, columns, notes)


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

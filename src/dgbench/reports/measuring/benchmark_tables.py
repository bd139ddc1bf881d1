"""Tables over the settings of a benchmark (Hwang et al. 2024, Tables 1-6).

Rank correlations of the measures with the ideal one; what each measure selects and what that costs;
how sure these are: intervals, chance of a correct selection, ranks; and a paper's correlations
beside ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import (
    SampleSummary,
    Statistics,
    compatible,
    correlation_difference,
    correlation_interval,
    pick_probability,
    sign_test,
)
from dgbench.analysis.accuracy import mean
from dgbench.errors import MeasureError
from dgbench.records.rows import Role, keys
from dgbench.reports.measuring.benchmarks import SHOWN, Benchmark, BenchmarkLine
from dgbench.reports.measuring.tables import COMPARED
from dgbench.reports.over_seeds import COEFFICIENTS, Ranking, complete, leader, over_seeds
from dgbench.reports.published import Published, Value, names, published
from dgbench.reports.tables import Column, Table, decimal, entries, entry, interval_entry, table

#: those that rank and select algorithms
RANKED_BY = {"ideal": "ideal", **COMPARED}
#: what must be equal for datasets to share an average
_SAME = ("evaluation", *(key for key in keys(Role.NETWORK | Role.PROTOCOL) if key != "backbone"))
# names the generator of resamples: another word would change every interval
_RESAMPLES = "survey_intervals"
AGREES, DIFFERS = "agrees", "differs"
TERMS, SELECTED = "hwang2024_table5", "hwang2024_table6"
_WHOSE = ("ours", "paper")


def _table(
    benchmark: Benchmark, lines: Sequence[Mapping[str, Any]], name: str, title: str, columns: Sequence[Column],
    notes: Sequence[str], detail: bool = False,
) -> Table:  # fmt: skip
    """Build a table whose lines begin with the values that name a setting."""
    axes = [Column(axis, key=True) for axis in benchmark.axes]
    keys = [*axes, Column("N", unit="count", help="given environments", key=True)]
    return table(lines, name, title, [*keys, *columns], notes, detail)


def _correlation_columns() -> list[Column]:
    return [
        Column(
            f"{coefficient} {title}", unit="correlation", help=f"{coefficient}: {title} with ideal"
        )
        for coefficient in COEFFICIENTS
        for title in SHOWN.values()
    ]


def benchmark_correlation_table(benchmark: Benchmark) -> Table:
    """List, for each setting, each measure's rank correlation with the ideal one, mean ± std over
    seeds.
    """
    lines = []
    for line in benchmark.lines:
        cells: dict[str, Any] = {**line.values, "N": line.count}
        for coefficient in COEFFICIENTS:
            rhos = {measure: line.correlations[coefficient, measure][0] for measure in SHOWN}
            best = leader(pd.DataFrame.from_dict(rhos, orient="index"), highest=True)
            for measure, title in SHOWN.items():
                rho, reason = line.correlations[coefficient, measure]
                name = f"{coefficient} {title}"
                cells |= over_seeds(name, [*rho.values()], len(line.seeds), reason) | {
                    f"{name}.best": measure == best
                }
        lines.append(cells)
    title = "Rank correlation with the ideal measure, every setting"
    notes = _on_correlation(benchmark, pd.DataFrame(lines))
    return _table(benchmark, lines, "suite_correlation", title, _correlation_columns(), notes)


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
    for name in COEFFICIENTS:
        pairs = lines[[f"{name} worst+gap", f"{name} average"]].astype("float64").dropna()
        if not len(pairs):
            sentences.append(
                f"{name}: no setting has both worst+gap and average; nothing can be concluded."
            )
            continue
        ahead = pairs[f"{name} worst+gap"] - pairs[f"{name} average"]
        sentences.append(
            f"{name}: worst+gap correlates better than average in {int((ahead > 0).sum())} of "
            f"{len(pairs)} settings, which is "
            f"{chance_words(int((ahead > 0).sum()), int((ahead < 0).sum()))}."
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
            for (coefficient, measure), (rho, problem) in line.correlations.items():
                name = f"{coefficient} {SHOWN[measure]}"
                cells |= entry(name, rho.get(seed), n=1, reason=problem or "not computed")
            lines.append(cells)
    columns = [Column("seed", unit="count", key=True), *_correlation_columns()]
    title = "Rank correlation with the ideal measure, every seed"
    notes = ["Negative ones are underlined."]
    return _table(benchmark, lines, "suite_correlation_seeds", title, columns, notes, detail=True)


def benchmark_tables(benchmark: Benchmark, statistics: Statistics) -> list[Table]:
    """Build all tables of one benchmark, those to read first in front."""
    return [
        benchmark_rank_table(benchmark),
        benchmark_hit_table(benchmark),
        benchmark_selection_table(benchmark),
        benchmark_correlation_table(benchmark),
        benchmark_interval_table(benchmark, statistics),
        *benchmark_published_tables(benchmark),
        benchmark_seed_table(benchmark),
    ]


def overview_table(benchmarks: Sequence[Benchmark]) -> Table:
    """List the correlations of each benchmark, mean ± std over settings; below, the average over
    datasets.
    """
    lines: list[dict[str, Any]] = []
    for benchmark in benchmarks:
        cells: dict[str, Any] = {"dataset": benchmark.title, "settings": len(benchmark.lines)}
        for coefficient in COEFFICIENTS:
            for measure, title in SHOWN.items():
                correlations = [line.correlations[coefficient, measure] for line in benchmark.lines]
                correlations = [] if benchmark.refused else correlations
                levels = [mean(list(rho.values())) for rho, _ in correlations if rho]
                reason = benchmark.refused or next(
                    (reason for _, reason in correlations if reason), ""
                )
                cells |= over_seeds(f"{coefficient} {title}", levels, len(benchmark.lines), reason)
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
        for column in _correlation_columns():
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
        *_correlation_columns(),
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
            chosen = {
                measure: () if untrained else line.selections[measure, seed].names
                for measure in RANKED_BY
            }
            for measure, title in RANKED_BY.items():
                selected = chosen[measure]
                right = measure != "ideal" and bool(selected) and selected[0] in chosen["ideal"]
                cells |= entry(
                    f"{group}: {title}", " = ".join(selected) or None, best=right, reason=problem
                )
        lines.append(cells)
    columns = [
        Column(f"{group}: {title}") for group in groups.values() for title in RANKED_BY.values()
    ]
    notes = [
        "Bold: the same algorithm as by the ideal measure, which alone knows all environments. "
        "mean: the algorithm selected on the mean over seeds. Ties are shown as a = b.",
        *(
            []
            if len(benchmark.seeds) > 1
            else ["1 seed: a selection may be the luck of that seed."]
        ),
    ]
    return _table(
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
    lines = [
        {"measure": measure, "line": position, "seed": seed, "degradation": chosen.cost}
        for position, line in enumerate(benchmark.lines)
        for (measure, seed), chosen in line.selections.items()
        if chosen.cost is not None and measure in SHOWN
    ]
    frame = pd.DataFrame(lines, columns=["measure", "line", "seed", "degradation"])
    return frame.astype({"seed": "Int64", "degradation": "float64"})


def correct_selections(benchmark: Benchmark) -> pd.DataFrame:
    """Count how often worst+gap and average select the truly best algorithm, where settings have
    ideal errors.

    Returns:
        By measure: ``right`` (selections that are truly best), ``number`` (selections, one per
        setting and seed) and ``cost`` (mean degradation, a fraction).
    """
    costs = selection_costs(benchmark).dropna(subset="seed").groupby("measure")["degradation"]
    correct = costs.agg(
        right=lambda degradations: (degradations == 0).sum(), number="size", cost="mean"
    )
    return pd.DataFrame(correct).reindex(list(COMPARED)).dropna()


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
    for measure, title in SHOWN.items():
        rows = costs[costs["measure"] == measure]
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
    """Say how to read the hit table, and what the selections by worst+gap cost against those by
    average.
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
    if set(COMPARED) <= set(single.columns):
        pairs = single[list(COMPARED)].dropna()
        difference = pairs["worst_gap"] - pairs["average"]
        better, worse = int((difference < 0).sum()), int((difference > 0).sum())
        by_setting = difference.groupby("line").sum()
        wins, losses = int((by_setting < 0).sum()), int((by_setting > 0).sum())
        sentences += [
            (
                f"worst+gap selects a better algorithm than average in {better} of {len(pairs)} "
                f"cases, a worse one in {worse} and an equally good one in "
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
    columns = [
        Column(title, unit="correlation", help=f"Spearman of {title} with ideal")
        for title in COMPARED.values()
    ]
    columns += [
        Column(
            "difference", unit="correlation", help="worst+gap less average, over the same resamples"
        )
    ]
    for title in COMPARED.values():
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
    above = int((frame["difference.low"] > 0).sum()) if "difference.low" in frame else 0
    below = int((frame["difference.high"] < 0).sum()) if "difference.high" in frame else 0
    notes = [
        (
            f"[low, high]: {statistics.percent} bootstrap interval; algorithms and seeds are "
            f"resampled ({statistics.draws} times, percentiles), so it speaks of other algorithms "
            "and seeds like these, not of other environments."
        ),
        (
            f"The interval of the difference lies above 0 in {above} and below 0 in {below} of "
            f"{len(lines)} settings; elsewhere these algorithms and seeds cannot tell the two "
            "measures apart."
        ),
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


def _intervals(
    line: BenchmarkLine, table_seed: tuple[object, ...], statistics: Statistics
) -> dict[str, Any]:
    """Compute the intervals of one setting; ``table_seed`` makes all of them see the same
    resamples.
    """
    values = {
        measure: matrix.to_numpy()
        for measure, matrix in complete(line.studies, list(RANKED_BY)).items()
    }
    ideal, draws, level = values["ideal"], statistics.draws, statistics.level
    algorithms, seeds = ideal.shape
    if not seeds or algorithms < 3:
        raise MeasureError(
            f"{algorithms} algorithms have all measures for every seed; 3 or more are needed"
        )
    cells: dict[str, Any] = {}
    for measure, title in COMPARED.items():
        rho = correlation_interval(
            values[measure], ideal, statistics.rng(*table_seed), draws=draws, level=level
        )
        chance = pick_probability(values[measure], ideal, statistics.rng(*table_seed), draws=draws)
        cells |= interval_entry(title, rho, seeds)
        cells |= entry(
            f"P(best) {title}", None if math.isnan(chance) else chance, reason="too few candidates"
        )
    difference = correlation_difference(
        values["worst_gap"],
        values["average"],
        ideal,
        statistics.rng(*table_seed),
        draws=draws,
        level=level,
    )
    return cells | interval_entry("difference", difference, seeds)


def rankings(benchmark: Benchmark) -> tuple[dict[str, Ranking], str]:
    """Rank algorithms over the settings (each block: means over seeds): measure -> ranking, or why
    there is none.
    """
    matrices = [complete(line.studies, list(RANKED_BY)) for line in benchmark.lines]
    usable = [by_measure for by_measure in matrices if len(by_measure["ideal"]) > 2]
    common = (
        sorted(set.intersection(*(set(by_measure["ideal"].index) for by_measure in usable)))
        if usable
        else []
    )
    if len(common) < 3 or len(usable) < 2:
        return {}, (
            f"{len(common)} algorithms are complete in {len(usable)} settings; "
            "ranks need 3 or more algorithms in 2 or more"
        )
    ranked = {}
    for measure in RANKED_BY:
        blocks = np.array(
            [by_measure[measure].loc[common].to_numpy().mean(axis=1) for by_measure in usable]
        )
        try:
            ranked[measure] = Ranking.of(common, blocks)
        except MeasureError as problem:
            return {}, str(problem)
    return ranked, ""


def benchmark_rank_table(benchmark: Benchmark) -> Table:
    """List the mean rank of every algorithm over the settings, by ideal, worst+gap and average."""
    ranked, reason = rankings(benchmark)
    columns = [
        Column("algorithm", key=True),
        *(Column(m, f"rank by {t}", "rank") for m, t in RANKED_BY.items()),
    ]
    title = "Mean rank over settings"
    if not ranked:
        return table([], "suite_ranks", title, columns, [f"Not computed: {reason}."])
    blocks = ranked["ideal"].test.blocks
    lines = []
    for algorithm in ranked["ideal"].order:
        cells: dict[str, Any] = {"algorithm": algorithm}
        for measure, ranking in ranked.items():
            cells |= entry(
                measure, ranking.ranks[algorithm], n=blocks, best=algorithm == ranking.leader
            )
        lines.append(cells)
    notes = [
        f"1 is the lowest error; a block is one of {blocks} settings, errors are means over seeds."
    ]
    notes += [f"{RANKED_BY[measure]}: {_verdict(ranking)}" for measure, ranking in ranked.items()]
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


def benchmark_published_tables(benchmark: Benchmark) -> list[Table]:
    """Build a table beside each published one (the paper's Tables 1 to 6) that holds a setting of
    this benchmark.
    """
    if benchmark.identity["base"] == "digits":  # the 8 x 8 ones, which stand in for MNIST
        return []
    papers = [
        paper
        for paper in map(published, names())
        if paper.match and paper.quantity == "correlation"
    ]
    tables = [_comparison(benchmark, paper) for paper in papers]
    tables += [
        _terms_beside(benchmark, published(TERMS)),
        _selections_beside(benchmark, published(SELECTED)),
    ]
    return [table for table in tables if table is not None]


def _terms_beside(benchmark: Benchmark, paper: Published) -> Table | None:
    """Compare correlations of worst and gap alone and of both, means over settings, with the
    paper's Table 5.
    """
    shown = {measure: SHOWN[measure] for measure in ("worst", "gap", "worst_gap")}
    lines: list[dict[str, Any]] = []
    for coefficient in COEFFICIENTS:
        theirs = paper.values.get(f"{coefficient.lower()}/{benchmark.identity['dataset']}")
        if theirs is None:
            return None
        lines.append({"coefficient": coefficient})
        for measure, title in shown.items():
            correlations = [line.correlations[coefficient, measure] for line in benchmark.lines]
            levels = [mean(list(rho.values())) for rho, _ in correlations if rho]
            lines[-1] |= over_seeds(
                f"{title} ours", levels, len(benchmark.lines), correlations[0][1]
            )
            lines[-1] |= entry(f"{title} paper", theirs[measure].mean)
    pairs = [
        (f"{title} {side}", paper.source if side == "paper" else "")
        for title in shown.values()
        for side in _WHOSE
    ]
    columns = [
        Column("coefficient", key=True),
        *(Column(name, unit="correlation", help=text) for name, text in pairs),
    ]
    notes = [
        (
            f"Ours: mean ± standard deviation over {len(benchmark.lines)} settings. Paper: "
            f"{paper.source}; {paper.note}."
        )
    ]
    return table(lines, "published_terms", f"Beside the paper: {paper.title}", columns, notes)


def _selections_beside(benchmark: Benchmark, paper: Published) -> Table | None:
    """Compare the algorithms selected on the mean over seeds and seed by seed with those of the
    paper's Table 6.
    """
    lines = []
    for line in benchmark.lines:
        if theirs := paper.words.get(_row(line, paper)):
            lines.append({**line.values, "N": line.count})
            for measure, title in RANKED_BY.items():
                seeds = [
                    " = ".join(line.selections[measure, seed].names) or "-" for seed in line.seeds
                ]
                chosen = line.selections[measure, None].names
                agrees = theirs[f"seed_average_{measure}"] in chosen
                lines[-1] |= entry(
                    f"{title} ours",
                    " = ".join(chosen) or None,
                    best=agrees,
                    flag=f"({', '.join(seeds)})",
                )
                words = ", ".join(theirs[f"seed_{seed}_{measure}"] for seed in range(3))
                lines[-1] |= entry(
                    f"{title} paper", theirs[f"seed_average_{measure}"], flag=f"({words})"
                )
    if not lines:
        return None
    columns = [Column(f"{title} {side}") for title in RANKED_BY.values() for side in _WHOSE]
    agreeing = sum(
        bool(line.get(f"{title} ours.best")) for line in lines for title in RANKED_BY.values()
    )
    notes = [
        (
            "On the mean over seeds, and in brackets for each. The mean selects the paper's "
            f"algorithm in {agreeing} of {len(lines) * len(RANKED_BY)} cases (bold). Paper: "
            f"{paper.source}."
        )
    ]
    return _table(
        benchmark, lines, "published_selections", f"Beside the paper: {paper.title}", columns, notes
    )


def _comparison(benchmark: Benchmark, paper: Published) -> Table | None:
    rows = [(line, row) for line in benchmark.lines if (row := _row(line, paper)) in paper.values]
    if not rows:
        return None
    columns = []
    for name in COEFFICIENTS:
        for shown in COMPARED.values():
            title = f"{name} {shown}"
            columns += [
                Column(f"{title} ours", unit="correlation", help=f"{name}: {shown} with ideal"),
                Column(f"{title} paper", unit="correlation", help=paper.source),
                Column(f"{title} difference", unit="correlation", help="ours less the paper's"),
                Column(f"{title}: values", help="whether the interval of the difference holds 0"),
            ]
        columns.append(
            Column(
                f"{name}: worst+gap ahead", help="whose worst+gap has the higher mean correlation"
            )
        )
    lines, orders = [], []
    for line, row in rows:
        cells: dict[str, Any] = {**line.values, "N": line.count}
        for name in COEFFICIENTS:
            means: dict[str, tuple[float | None, float]] = {}
            for measure, shown in COMPARED.items():
                title = f"{name} {shown}"
                rho, reason = line.correlations[name, measure]
                theirs = paper.values[row][f"{name.lower()}_{measure}"]
                cells |= over_seeds(f"{title} ours", [*rho.values()], len(line.seeds), reason)
                cells |= entry(f"{title} paper", theirs.mean, std=theirs.error)
                cells |= _difference(title, cells, theirs, paper.seeds)
                means[measure] = cells[f"{title} ours"], theirs.mean
            orders.append(_ordering(means))
            cells[f"{name}: worst+gap ahead"] = orders[-1]
        lines.append(cells)
    verdicts = [
        line[f"{c} {shown}: values"]
        for line in lines
        for c in COEFFICIENTS
        for shown in COMPARED.values()
    ]
    compared = [word for word in verdicts if word]
    agreeing = sum(order in ("in both", "in neither") for order in orders)
    notes = [
        f"Paper: {paper.source}; {paper.note}.",
        (
            f"Values: {compared.count(AGREES)} of {len(compared)} that can be compared agree: the "
            "95% interval of ours less the paper's holds 0 (Welch's, from means and standard "
            "deviations over seeds; each is judged by itself). Over a few seeds it is wide, so to "
            "agree is not to be equal."
        ),
        (
            "Ordering: on whether worst+gap is ahead of the average measure, the means say the "
            f"same in {agreeing} of {len(orders)} cells. The same ordering does not make the "
            "values agree."
        ),
    ]
    title = "Rank correlation with the ideal measure beside the paper's"
    return _table(benchmark, lines, "suite_published", title, columns, notes)


def _row(line: BenchmarkLine, paper: Published) -> str:
    """Format the name of a setting's row in the paper's table; empty where a key is not of this
    dataset.
    """
    identity = line.setting.identity
    try:
        return paper.match.format(**{"dataset": identity["dataset"], **identity["variant"]})
    except KeyError:
        return ""


def _difference(title: str, cells: Mapping[str, Any], theirs: Value, seeds: int) -> dict[str, Any]:
    """Compute ours less theirs with its interval, and whether that holds 0; or the reason why there
    is none.
    """
    rho = cells[f"{title} ours"]
    columns = [f"{title} difference", f"{title}: values"]
    if rho is None:
        return entries(columns, cells[f"{title} ours.reason"])
    ours = SampleSummary(rho, cells.get(f"{title} ours.std"), cells[f"{title} ours.n"])
    try:
        difference = compatible(ours, SampleSummary(theirs.mean, theirs.error, seeds))
    except MeasureError as problem:
        return entries(columns, str(problem))
    return {
        **interval_entry(columns[0], difference),
        columns[1]: DIFFERS if difference.excludes_zero else AGREES,
    }


def _ordering(means: Mapping[str, tuple[float | None, float]]) -> str:
    """Say whether worst+gap has the higher mean correlation, here and in the paper."""
    (ours, theirs), (our_average, their_average) = means["worst_gap"], means["average"]
    ahead_in_paper = theirs > their_average
    if ours is None or our_average is None:
        return "paper only" if ahead_in_paper else "not in the paper"
    words = {(True, True): "in both", (True, False): "ours only", (False, True): "paper only"}
    return words.get((ours > our_average, ahead_in_paper), "in neither")

"""What each measure selects, and at what cost: in one setting, and in the settings of a benchmark
(Hwang et al. 2024, Table 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from dgbench.analysis import Measure
from dgbench.plan.measures import IDEAL
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.measuring.benchmarks import Benchmark, settings_table
from dgbench.reports.measuring.correlations import chance_words
from dgbench.reports.over_seeds import algorithms_of, by_seed, over_seeds, seeds_of
from dgbench.reports.predictions import candidates, costs, selected
from dgbench.reports.resolution import smallest_found
from dgbench.reports.studies import has_no_ideal
from dgbench.reports.tables import Column, Table, entries, entry, interval_entry, table


def selection_table(evaluation: Evaluation) -> Table:
    """List, for each measure, the algorithm that it selects and what that costs."""
    studies = evaluation.studies
    seeds = seeds_of(studies)
    unknown = has_no_ideal(studies)
    columns = [
        Column("measure", key=True),
        *(Column(f"seed {seed}") for seed in seeds),
        Column("mean over seeds"),
        *([] if unknown else _cost_columns()),
        Column(
            "resolution",
            unit="points",
            help="smallest difference of the measure that the seeds find, 80% power",
        ),
    ]
    lines = []
    if len(algorithms_of(studies)) > 1:
        measures = evaluation.measures.of_runs
        if unknown:
            measures = [measure for measure in measures if measure.needs != "everywhere"]
        lines = [_selection_line(measure, evaluation) for measure in measures]
    return table(lines, "selected", "Algorithm each measure selects", columns, _on_setting(studies))


def _cost_columns() -> list[Column]:
    """List the columns on what a selection costs, where ideal errors are known."""
    return [
        Column(
            "degradation",
            "cost",
            unit="points",
            help="ideal error of the selected algorithm minus the lowest, over seeds",
        ),
        Column(
            "degradation (mean)",
            "cost, chosen on the mean",
            unit="points",
            help="the same for the algorithm selected on the mean over seeds",
        ),
        Column(
            "truly best",
            unit="count",
            help="seeds in which the selected algorithm has the lowest ideal error",
        ),
    ]


def _selection_line(measure: Measure, evaluation: Evaluation) -> dict[str, Any]:
    """Fill the line of a measure in :func:`selection_table`."""
    name = measure.name
    selections = evaluation.selections
    seeds = seeds_of(evaluation.studies)
    line: dict[str, Any] = {"measure": measure.title}
    columns: dict[int | None, str] = {seed: f"seed {seed}" for seed in seeds}
    columns[None] = "mean over seeds"
    for seed, column in columns.items():
        names = " = ".join(selected(selections, name, seed))
        line |= entry(column, names or None, reason="no algorithm has this measure")
    by_seeds = costs(selections, name)
    absence = "no seed has both a selection and ideal errors"
    line |= over_seeds("degradation", by_seeds, len(seeds), absence)
    on_mean = next(iter(costs(selections, name, on_mean=True)), None)
    line |= entry("degradation (mean)", on_mean, reason="nothing selected or no ideal error")
    if by_seeds:
        line |= _hits("truly best", by_seeds)
    else:
        line |= entry("truly best", reason="no ideal errors")
    smallest = smallest_found(by_seed(evaluation.studies, name))
    if smallest:
        return line | interval_entry("resolution", smallest)
    return line | entry("resolution", reason="no two algorithms differ over 2 seeds")


def _on_setting(studies: pd.DataFrame) -> list[str]:
    """Describe what the selections of one setting support."""
    sentences = ["Ties are shown as a = b, the first counts."]
    names = algorithms_of(studies)
    seeds = seeds_of(studies)
    if len(names) == 1:
        return ["1 algorithm: there is nothing to choose from; train another."]
    if not studies[IDEAL].notna().any():
        sentences.append(
            "No ideal errors: whether a selected algorithm is truly best cannot be known."
        )
    else:
        cost = (
            "Cost: ideal error of the selected algorithm minus the lowest one, in percentage "
            "points (0: truly best)."
        )
        sentences.insert(0, cost)
        word = "seed" if len(seeds) == 1 else "seeds"
        sentences.append(
            f"{len(seeds)} {word}, {len(names)} algorithms: a blind guess among {len(names)} "
            f"algorithms is right once in {len(names)}, keep that in mind when counting correct "
            "selections."
        )
    pools = candidates(studies)
    for seed in seeds:
        incomplete = sorted(set(names) - set(pools[seed]))
        if incomplete:
            sentences.append(
                f"Seed {seed} is incomplete for {', '.join(incomplete)}: not chosen among."
            )
    incomplete = sorted(set(names) - set(pools[None]))
    if not pools[None]:
        sentences.append(
            "No choice on the mean: fewer than 2 algorithms are complete in every seed."
        )
    elif incomplete:
        sentences.append(f"The choice on the mean leaves out {', '.join(incomplete)}.")
    return sentences


def benchmark_selection_table(benchmark: Benchmark) -> Table:
    """List the algorithm that each measure selects, by seed and on their mean (Table 6)."""
    groups: dict[int | None, str] = {seed: f"seed {seed}" for seed in benchmark.seeds}
    groups[None] = "mean"
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
            selections = line.evaluation.selections.iloc[: 0 if untrained else None]
            truly = selected(selections, IDEAL, seed)
            for measure in benchmark.measures.ranked:
                names = selected(selections, measure.name, seed)
                right = measure.name != IDEAL and bool(names) and names[0] in truly
                cells |= entry(
                    f"{group}: {measure.title}",
                    " = ".join(names) or None,
                    best=right,
                    reason=problem,
                )
        lines.append(cells)
    titles = [measure.title for measure in benchmark.measures.ranked]
    columns = []
    for group in groups.values():
        columns += [Column(f"{group}: {title}") for title in titles]
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


def correct_selections(benchmark: Benchmark) -> pd.DataFrame:
    """Count how often the compared measures select the truly best algorithm, where settings have
    ideal errors.

    Returns:
        By measure: ``right`` (selections that are truly best), ``number`` (selections, one per
        setting and seed) and ``cost`` (the mean one, a fraction).
    """
    known = benchmark.selections.dropna(subset=["seed", "cost"]).groupby("measure")["cost"]
    correct = known.agg(right=lambda of_one: (of_one == 0).sum(), number="size", cost="mean")
    compared = [measure.name for measure in benchmark.measures.compared]
    return pd.DataFrame(correct).reindex(compared).dropna()


def benchmark_hit_table(benchmark: Benchmark) -> Table:
    """Count how often each measure selects the truly best algorithm, and average the cost."""
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
        Column("degradation", "cost", "points", "ideal error of it minus the lowest, mean ± std"),
        Column("largest degradation", "largest cost", "points", "the costliest single selection"),
    ]
    selections = benchmark.selections
    lines = []
    for measure in benchmark.measures.predicting:
        cells: dict[str, Any] = {"measure": measure.in_correlations}
        single = costs(selections, measure.name)
        if single:
            cells |= _hits("truly best", single)
            cells |= _hits("truly best on the mean", costs(selections, measure.name, on_mean=True))
            cells |= over_seeds("degradation", single, len(single))
            cells |= entry("largest degradation", max(single), n=len(single))
        else:
            names = [column.name for column in columns[1:]]
            cells |= entries(names, "no setting has ideal errors")
        lines.append(cells)
    title = "How often each measure selects the truly best algorithm"
    return table(lines, "suite_hits", title, columns, _on_hits(benchmark))


def _hits(column: str, known: Sequence[float]) -> dict[str, Any]:
    """Count the selections that cost nothing, of all whose cost is known."""
    return entry(column, float(known.count(0.0)), n=len(known), flag=f"of {len(known)}")


def _on_hits(benchmark: Benchmark) -> list[str]:
    """Explain the hit table, and weigh the first compared measure against each other one."""
    count = len(benchmark.algorithms)
    sentences = [
        (
            f"A blind guess among {count} algorithms is right once in {count}. Cost 0: "
            "truly best. Over settings and seeds, which are no independent trials: seeds share "
            "their setting's environments."
        )
    ]
    known = benchmark.selections.dropna(subset=["seed", "cost"])
    single = known.pivot(index=["setting", "seed"], columns="measure", values="cost")
    first, *others = benchmark.measures.compared
    for other in others:
        if not {first.name, other.name} <= set(single.columns):
            continue
        pairs = single[[first.name, other.name]].dropna()
        difference = pairs[first.name] - pairs[other.name]
        better, worse = int((difference < 0).sum()), int((difference > 0).sum())
        by_setting = difference.groupby("setting").sum()
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

"""What each measure selects in the settings of a benchmark, and at what cost (Hwang et al. 2024,
Table 6).
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from dgbench.plan.measures import IDEAL
from dgbench.reports.measuring.benchmark_correlations import chance_words
from dgbench.reports.measuring.benchmarks import Benchmark, settings_table
from dgbench.reports.over_seeds import over_seeds
from dgbench.reports.tables import Column, Table, entries, entry, table


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
    """Explain the hit table, and weigh the first compared measure against each other one."""
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

"""Rank correlations of the measures with the ideal one over the settings of a benchmark, and over
datasets (Hwang et al. 2024, Tables 1 to 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from dgbench.analysis import (
    sign_test,
)
from dgbench.analysis.accuracy import mean
from dgbench.plan.measures import MeasureChoice
from dgbench.records.rows import Role, keys
from dgbench.reports.measuring.benchmarks import Benchmark, settings_table
from dgbench.reports.over_seeds import COEFFICIENTS, leader, over_seeds
from dgbench.reports.tables import Column, Table, entry, table

#: what must be equal for datasets to share an average
_SAME = ("evaluation", *(key for key in keys(Role.NETWORK | Role.PROTOCOL) if key != "backbone"))


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


def _on_correlation(benchmark: Benchmark, lines: pd.DataFrame) -> list[str]:
    """Describe what the correlations of the settings (Table 1) support."""
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


def _why_no_average(benchmarks: Sequence[Benchmark]) -> str:
    """Return why benchmarks must not share an average, or an empty text if they may."""
    for key in _SAME:
        values = sorted({str(benchmark.identity[key]) for benchmark in benchmarks})
        if len(values) > 1:
            return f"they differ in {key} ({', '.join(values)})"
    datasets = [benchmark.identity["dataset"] for benchmark in benchmarks]
    twice = sorted({name for name in datasets if datasets.count(name) > 1})
    if twice:
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

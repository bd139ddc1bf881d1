"""Rank correlations of the measures with the ideal one: of one setting, over the settings of a
benchmark, and over datasets (Hwang et al. 2024, Tables 1 to 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from dgbench.analysis import sign_test
from dgbench.analysis.accuracy import mean
from dgbench.plan.measures import IDEAL, WORST, MeasureChoice
from dgbench.records.run_identity import Role, keys
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.measuring.benchmarks import Benchmark, settings_table
from dgbench.reports.over_seeds import (
    algorithms_of,
    by_seed,
    leader,
    over_seeds,
    reasons,
    seed_columns,
    seeds_of,
)
from dgbench.reports.predictions import COEFFICIENTS, candidates, of_measure, why_no_ideal
from dgbench.reports.tables import Column, Table, entry, table

#: what must be equal for datasets to share an average
_SAME = ("evaluation", *(key for key in keys(Role.NETWORK | Role.PROTOCOL) if key != "backbone"))


def setting_cells(
    evaluation: Evaluation, coefficient: str, measure: str, column: str
) -> dict[str, Any]:
    """Average the correlations of a measure over the seeds of one setting.

    Args:
        evaluation: of the setting.
        coefficient: a key of :data:`~dgbench.reports.predictions.COEFFICIENTS`.
        measure: its name.
        column: of the cells.
    """
    lines = of_measure(evaluation.correlations, measure, coefficient)
    reason = why_no_ideal(evaluation.studies) or next(iter(lines["rho.reason"].dropna()), "")
    return over_seeds(column, lines["rho"].dropna().tolist(), len(lines), reason)


def benchmark_cells(
    benchmark: Benchmark, coefficient: str, measure: str, column: str
) -> dict[str, Any]:
    """Average the correlations of a measure over seeds, then over the settings of a benchmark.

    Arguments as of :func:`setting_cells`. A refused benchmark has none.
    """
    settings = [] if benchmark.refused else benchmark.lines
    cells = [setting_cells(line.evaluation, coefficient, measure, column) for line in settings]
    levels = [cell[column] for cell in cells if cell[column] is not None]
    reasons_of = (cell.get(f"{column}.reason", "") for cell in cells)
    reason = benchmark.refused or next(filter(None, reasons_of), "")
    return over_seeds(column, levels, len(benchmark.lines), reason)


def correlation_table(evaluation: Evaluation) -> Table:
    """Correlate the ranks of each practical measure with those of the ideal one, per seed and mean
    ± std.
    """
    studies = evaluation.studies
    seeds = seeds_of(studies)
    columns = [
        Column("measure", key=True),
        Column("coefficient", key=True),
        *(Column(f"seed {seed}", unit="correlation") for seed in seeds),
        Column(
            "mean over seeds",
            unit="correlation",
            help="mean ± standard deviation of the values per seed",
        ),
    ]
    parts = []
    if len(algorithms_of(studies)) > 1:
        parts = [_correlation_lines(evaluation, coefficient) for coefficient in COEFFICIENTS]
    title = "Rank correlation with the ideal measure over algorithms"
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return table(frame, "correlation", title, columns, _on_setting(studies))


def _correlation_lines(evaluation: Evaluation, coefficient: str) -> pd.DataFrame:
    """Fill the lines of a coefficient in :func:`correlation_table`, one for each measure."""
    titles = {measure.name: measure.title for measure in evaluation.measures.practical}
    total = len(algorithms_of(evaluation.studies))
    seeds = len(seeds_of(evaluation.studies))
    rows = evaluation.correlations
    rows = rows[rows["measure"].isin(list(titles)) & (rows["coefficient"] == coefficient)]
    lines = []
    for name, title in titles.items():
        line: dict[str, Any] = {"measure": title, "coefficient": coefficient}
        for row in of_measure(rows, name).to_dict("records"):
            rho = None if math.isnan(row["rho"]) else row["rho"]
            flag = ""
            if rho is not None and row["algorithms"] < total:
                flag = f"({row['algorithms']} of {total})"
            line |= entry(f"seed {row['seed']}", rho, flag=flag, reason=row["rho.reason"])
        lines.append(line)
    order = list(titles)
    means = seed_columns(
        by_seed(rows, "rho", "measure"),
        "mean over seeds",
        order,
        dict.fromkeys(order, seeds),
        reasons(rows, "rho", "measure"),
        highest=True,
    )
    return pd.DataFrame(lines, index=order).join(means)


def _on_setting(studies: pd.DataFrame) -> list[str]:
    """Describe what the correlations of one setting support."""
    count = len(by_seed(studies, WORST).index.intersection(by_seed(studies, IDEAL).index))
    total = len(algorithms_of(studies))
    seeds = seeds_of(studies)
    if total == 1:
        return ["1 algorithm: a rank correlation needs 2 or more; train another."]
    sentences = [
        (
            "1 means that the measure orders the algorithms as the ideal one does. Negative ones "
            "are underlined."
        )
    ]
    if count < 2:
        sentences.append(f"{count} algorithm with all folds: a rank correlation needs 2 or more.")
    elif count == 2:
        sentences.append(
            "2 algorithms: a rank correlation can only be 1 or -1, so this is no evidence."
        )
    elif count <= 6:
        sentences.append(
            f"{count} algorithms: even a perfect correlation comes up by chance in 1 of "
            f"{math.factorial(count)} orders; compare more algorithms before ranking the measures."
        )
    pools = candidates(studies)
    if any(len(pools[seed]) < total for seed in seeds):
        sentences.append("(k of n) marks a seed in which only k of the n algorithms are complete.")
    if len(seeds) == 1:
        sentences.append("1 seed: no standard deviation.")
    return sentences


def benchmark_correlation_table(benchmark: Benchmark) -> Table:
    """List, for each setting, each measure's rank correlation with the ideal one, mean ± std over
    seeds.
    """
    lines = []
    measures = [measure.name for measure in benchmark.measures.predicting]
    for line in benchmark.lines:
        cells: dict[str, Any] = {**line.values, "N": line.count}
        rows = line.evaluation.correlations
        for coefficient in COEFFICIENTS:
            values = by_seed(rows[rows["coefficient"] == coefficient], "rho", "measure")
            best = leader(values.reindex(measures), highest=True)
            for name, title in _titles(benchmark.measures, coefficient).items():
                cells |= setting_cells(line.evaluation, coefficient, name, title)
                cells[f"{title}.best"] = name == best
        lines.append(cells)
    title = "Rank correlation with the ideal measure, every setting"
    notes = _on_settings(benchmark, pd.DataFrame(lines))
    columns = _correlation_columns(benchmark.measures)
    return settings_table(benchmark, lines, "suite_correlation", title, columns, notes)


def benchmark_seed_table(benchmark: Benchmark) -> Table:
    """List the correlations of :func:`benchmark_correlation_table` by setting and seed, as in
    Tables 3 and 4.
    """
    lines = []
    for line in benchmark.lines:
        absence = why_no_ideal(line.studies)
        for seed, rows in line.evaluation.correlations.groupby("seed"):
            cells = {**line.values, "N": line.count, "seed": seed}
            row_of = {(row["coefficient"], row["measure"]): row for row in rows.to_dict("records")}
            for coefficient in COEFFICIENTS:
                for name, title in _titles(benchmark.measures, coefficient).items():
                    row = row_of[coefficient, name]
                    rho = None if math.isnan(row["rho"]) else row["rho"]
                    cells |= entry(title, rho, n=1, reason=absence or row["rho.reason"])
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
        for coefficient in COEFFICIENTS:
            for name, title in _titles(measures, coefficient).items():
                cells |= benchmark_cells(benchmark, coefficient, name, title)
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


def _titles(measures: MeasureChoice, coefficient: str) -> dict[str, str]:
    """Map the name of each predicting measure -> the column of its correlations."""
    return {m.name: f"{coefficient} {m.in_correlations}" for m in measures.predicting}


def _correlation_columns(measures: MeasureChoice) -> list[Column]:
    """List a column for each coefficient and measure."""
    titles = [measure.in_correlations for measure in measures.predicting]
    columns = []
    for coefficient in COEFFICIENTS:
        for title in titles:
            meaning = f"{coefficient}: {title} with ideal"
            columns.append(Column(f"{coefficient} {title}", unit="correlation", help=meaning))
    return columns


def _on_settings(benchmark: Benchmark, lines: pd.DataFrame) -> list[str]:
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
    all_codes: set[str] = set()
    for benchmark in benchmarks:
        all_codes.update(*(line.setting.codes for line in benchmark.lines))
    codes = sorted(all_codes)
    return (
        f"they come from {len(codes)} code versions ({', '.join(codes)})" if len(codes) > 1 else ""
    )

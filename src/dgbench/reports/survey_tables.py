"""The tables of the worst+gap study over many configurations (Hwang et al. 2024, Tables 1 to 4 and 6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dgbench.errors import MeasureError
from dgbench.measures import kendall, spearman
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.seed_statistics import over_seeds, with_best
from dgbench.reports.survey_conclusions import on_survey_correlation
from dgbench.reports.surveys import Configuration, Survey

#: the practical measures in the paper's order and words
SHOWN = {"worst_gap": "worst+gap", "average": "average", "worst": "worst only", "gap": "gap only"}
COEFFICIENTS: dict[str, Callable[[Mapping[str, float], Mapping[str, float]], float]] = {
    "Spearman": spearman,
    "Kendall": kendall,
}


def survey_correlation_table(survey: Survey, how: str) -> Table:
    """One line per configuration: each measure's rank correlation with the ideal one, mean ± std over seeds."""
    columns = key_columns(survey)
    for name in COEFFICIENTS:
        columns += [Column(f"{name} {title}", "correlation", f"{name}: {title} with ideal") for title in SHOWN.values()]
    body = []
    for line in survey.configurations:
        row = key_cells(survey, line)
        for correlate in COEFFICIENTS.values():
            cells = []
            for measure in SHOWN:
                by_seed, why = correlations(line, measure, correlate)
                cells.append(over_seeds(by_seed, len(line.comparison.seeds), why))
            row += with_best(cells, highest=True)
        body.append(row)
    title = f"Rank correlation with the ideal measure, every configuration ({how})"
    return Table("survey_correlation", title, columns, body, on_survey_correlation(survey, body, len(columns) - 8))


def survey_seed_table(survey: Survey, how: str) -> Table:
    """The same, one line per configuration and seed, as in Tables 3 and 4."""
    columns = [*key_columns(survey), Column("seed", "count", key=True)]
    for name in COEFFICIENTS:
        columns += [Column(f"{name} {title}", "correlation", f"{name}: {title} with ideal") for title in SHOWN.values()]
    body = []
    for line in survey.configurations:
        found = {
            (name, measure): correlations(line, measure, correlate)
            for name, correlate in COEFFICIENTS.items()
            for measure in SHOWN
        }
        for seed in line.comparison.seeds:
            row = [*key_cells(survey, line), Cell(float(seed))]
            for name in COEFFICIENTS:
                cells = []
                for measure in SHOWN:
                    by_seed, why = found[name, measure]
                    cells.append(Cell(by_seed[seed], n=1) if seed in by_seed else Cell(reason=why or "not computed"))
                row += with_best(cells, highest=True)
            body.append(row)
    title = f"Rank correlation with the ideal measure, every seed ({how})"
    notes = ["Highest of a line and coefficient in bold, negative ones underlined."]
    return Table("survey_correlation_seeds", title, columns, body, notes, detail=True)


def correlations(
    line: Configuration, measure: str, correlate: Callable[[Mapping[str, float], Mapping[str, float]], float]
) -> tuple[dict[int, float], str]:
    """Seed -> correlation with the ideal over the algorithms that have both, and why a seed has none."""
    values, ideal = line.comparison.values(measure), line.comparison.values("ideal")
    found, why = {}, "" if ideal else _no_ideal(line)
    for seed in line.comparison.seeds:
        both = [a for a in values if seed in values[a] and seed in ideal.get(a, {})]
        try:
            found[seed] = correlate({a: values[a][seed] for a in both}, {a: ideal[a][seed] for a in both})
        except MeasureError as problem:
            why = why or str(problem)
    return found, why


def key_columns(survey: Survey) -> list[Column]:
    """The columns that name a configuration."""
    axes = [Column(axis, "text", key=True) for axis in survey.axes]
    return [*axes, Column("N", "count", "given environments", key=True)]


def key_cells(survey: Survey, line: Configuration) -> list[Cell]:
    """Their cells."""
    return [*(Cell(line.values[axis]) for axis in survey.axes), Cell(float(line.count))]


def _no_ideal(line: Configuration) -> str:
    reasons = (study.measures.reasons.get("ideal", "") for study in line.comparison.studies)
    return next((why for why in reasons if why), "no ideal errors")

"""Datasets side by side (Hwang et al. 2024, Table 5)."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.seed_statistics import mean, over_seeds, with_best
from dgbench.reports.survey_tables import COEFFICIENTS, SHOWN, correlations
from dgbench.reports.surveys import Survey

#: what must be equal for datasets to share an average
_SAME = ("evaluation", "init", "tuning", "protocol")


def overview_table(surveys: Sequence[Survey], titles: Sequence[str], how: str) -> Table:
    """One line per survey: its correlations, mean ± std over configurations; below, the average over datasets."""
    columns = [Column("dataset"), Column("configurations", "count")]
    for name in COEFFICIENTS:
        columns += [Column(f"{name} {title}", "correlation", f"{name}: {title} with ideal") for title in SHOWN.values()]
    body: list[list[Cell]] = []
    for survey, title in zip(surveys, titles, strict=True):
        row = [Cell(title), Cell(float(len(survey.configurations)))]
        for correlate in COEFFICIENTS.values():
            cells = []
            for measure in SHOWN:
                means, why = {}, survey.refused
                for at, line in enumerate(survey.configurations if not survey.refused else []):
                    by_seed, reason = correlations(line, measure, correlate)
                    why = why or reason
                    if by_seed:
                        means[at] = mean(list(by_seed.values()))
                cells.append(over_seeds(means, len(survey.configurations), why))
            row += with_best(cells, highest=True)
        body.append(row)
    notes = [
        "Mean over seeds, then mean ± standard deviation over configurations; n marks those that have a value. "
        "Highest of a line and coefficient in bold, negative ones underlined."
    ]
    if len(surveys) > 1:
        why = _unlike(surveys)
        row = [Cell("average"), Cell(float(sum(len(survey.configurations) for survey in surveys)))]
        for start in (2, 2 + len(SHOWN)):
            cells = []
            for column in range(start, start + len(SHOWN)):
                values = [line[column].value for line in body]
                numbers = [value for value in values if isinstance(value, float)]
                whole = not why and len(numbers) == len(values)
                cells.append(Cell(mean(numbers), n=len(numbers)) if whole else Cell(reason=why or "a dataset has none"))
            row += with_best(cells, highest=True)
        body.append(row)
        notes.append(f"No average over the lines: {why}." if why else "average: every dataset counts once.")
    return Table("overview", f"Rank correlation with the ideal measure, per dataset ({how})", columns, body, notes)


def _unlike(surveys: Sequence[Survey]) -> str:
    for key in _SAME:
        found = sorted({str(survey.identity[key]) for survey in surveys})
        if len(found) > 1:
            return f"they differ in {key} ({', '.join(found)})"
    names = [survey.identity["dataset"] for survey in surveys]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"{', '.join(twice)} stands in more than one line (other base images, network or seeds)"
    codes = sorted({code for survey in surveys for line in survey.configurations for code in line.comparison.codes})
    return f"they come from {len(codes)} code versions ({', '.join(codes)})" if len(codes) > 1 else ""

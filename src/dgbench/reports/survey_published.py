"""A paper's correlations with the ideal measure beside ours, configuration by configuration."""

from __future__ import annotations

from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.published import Published, Value, names, published
from dgbench.reports.seed_statistics import over_seeds
from dgbench.reports.survey_tables import COEFFICIENTS, SHOWN, correlations, key_cells, key_columns
from dgbench.reports.surveys import Configuration, Survey

#: the measures that the paper's Tables 1 and 2 hold
MEASURES = ("worst_gap", "average")


def survey_published_tables(survey: Survey, how: str) -> list[Table]:
    """One table for every published one that holds a configuration of this survey."""
    tables = [published(name) for name in names()]
    return [made for table in tables if table.match and (made := _beside(survey, table, how)) is not None]


def _beside(survey: Survey, table: Published, how: str) -> Table | None:
    lines = [(line, row) for line in survey.configurations if (row := _row(line, table)) in table.values]
    if not lines:
        return None
    columns = key_columns(survey)
    for name in COEFFICIENTS:
        for measure in MEASURES:
            columns += [
                Column(f"{name} {SHOWN[measure]} ours", "correlation", f"{name}: {SHOWN[measure]} with ideal"),
                Column(f"{name} {SHOWN[measure]} paper", "correlation", table.source),
            ]
        columns.append(Column(f"{name}: worst+gap ahead", "text", "whose worst+gap has the higher mean correlation"))
    body, verdicts = [], []
    for line, row in lines:
        cells = key_cells(survey, line)
        for name, correlate in COEFFICIENTS.items():
            ours, theirs = {}, {}
            for measure in MEASURES:
                by_seed, why = correlations(line, measure, correlate)
                ours[measure] = over_seeds(by_seed, len(line.comparison.seeds), why)
                theirs[measure] = table.values[row][f"{name.lower()}_{measure}"]
                cells += [ours[measure], Cell(theirs[measure].mean, theirs[measure].error)]
            verdict = _verdict(ours, theirs)
            verdicts.append(verdict)
            cells.append(Cell(verdict))
        body.append(cells)
    agree = sum(verdict in ("in both", "in neither") for verdict in verdicts)
    notes = [
        f"Paper: {table.source}; {table.note}.",
        f"On whether worst+gap is ahead of the average measure, ours and the paper agree in {agree} of "
        f"{len(verdicts)} cells. Means over a few seeds: a difference smaller than the standard deviations decides "
        "nothing.",
    ]
    title = f"Rank correlation with the ideal measure beside the paper's ({how})"
    return Table("survey_published", title, columns, body, notes)


def _row(line: Configuration, table: Published) -> str:
    """The name that the paper's table has for a configuration; empty where a key is not of this dataset."""
    identity = line.comparison.identity
    try:
        return table.match.format(**{"dataset": identity["dataset"], **identity["variant"]})
    except KeyError:
        return ""


def _verdict(ours: dict[str, Cell], theirs: dict[str, Value]) -> str:
    mine = [value for measure in MEASURES if isinstance(value := ours[measure].value, float)]
    if len(mine) < len(MEASURES):
        return "paper only" if _ahead([theirs[m].mean for m in MEASURES]) else "not in the paper"
    here, there = _ahead(mine), _ahead([theirs[measure].mean for measure in MEASURES])
    return {(True, True): "in both", (True, False): "ours only", (False, True): "paper only"}.get(
        (here, there), "in neither"
    )


def _ahead(values: list[float]) -> bool:
    worst_gap, average = values
    return worst_gap > average

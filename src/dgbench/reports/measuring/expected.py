"""Measures of the mean errors beside those of a run: what the noise of seeds adds to worst cases.

See :mod:`dgbench.analysis.expected` for what the two estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import Measure
from dgbench.analysis.expected import MOST_ENVIRONMENTS, Expected, expected
from dgbench.errors import MeasureError
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.over_seeds import by_seed, line_values, means, standard_deviation
from dgbench.reports.standing import counted
from dgbench.reports.tables import Column, Table, entry, interval_entry, percent, table

_MOST_NAMED = 3

Estimates = Mapping[str, Expected]  #: algorithm -> estimate


def role_of(measure: Measure) -> str:
    """Return the role, in ``errors`` of an evaluation, of the errors that a measure needs."""
    return "everywhere" if measure.needs == "everywhere" else "held_out"


def expected_measures(evaluation: Evaluation, measure: Measure) -> dict[str, Expected]:
    """Estimate a measure of expected errors for each algorithm of one setting.

    Args:
        evaluation: of one setting.
        measure: of runs.

    Returns:
        Algorithm -> estimate, of those that have the measure in some seed. Seeds without it are
        left out.
    """
    errors = evaluation.errors
    errors = errors[(errors["role"] == role_of(measure)) & errors["error"].notna()]
    has_measure = evaluation.studies[evaluation.studies[measure.name].notna()]
    seeds_of = {str(name): set(lines["seed"]) for name, lines in has_measure.groupby("algorithm")}
    # one pivot of all: of a thousand algorithms, one of each takes half a minute
    # environments in the order in which a study lists them, which a measure may weigh
    order = list(dict.fromkeys(errors["env"]))
    matrix = errors.pivot(index=["algorithm", "seed"], columns="env", values="error")[order]
    values = matrix.to_numpy(dtype="float64")
    seeds = matrix.index.get_level_values("seed")
    estimates = {}
    for name, rows in sorted(matrix.groupby("algorithm", observed=True).indices.items()):
        usable = seeds_of.get(str(name), set())
        used = [int(row) for row in rows if seeds[row] in usable]
        if not used:
            continue
        complete = ~np.isnan(values[used]).any(axis=0)
        try:
            estimates[str(name)] = expected(values[used][:, complete], measure)
        except MeasureError:  # it fails for the mean errors alone
            continue
    return estimates


def of_means_cells(
    column: str, estimates: Estimates, order: Sequence[str], reason: str
) -> pd.DataFrame:
    """Fill a column of measures of mean errors for the algorithms of a table.

    Args:
        column: its name.
        estimates: of the measure.
        order: the algorithms.
        reason: why one has none.
    """
    cells = []
    for name in order:
        value = estimates[name].value if name in estimates else None
        cells.append(entry(column, value, reason=reason))
    return pd.DataFrame(cells, index=list(order))


def noise_sentences(studies: pd.DataFrame, measure: Measure, estimates: Estimates) -> list[str]:
    """Warn if seed noise raises a measure by more than a standard error, or changes places.

    Args:
        studies: of one setting.
        measure: of runs.
        estimates: of it.
    """
    values = by_seed(studies, measure.name)
    level = means(values)
    raised = []
    for name, estimate in estimates.items():
        seeds = line_values(values, name)
        deviation = standard_deviation(seeds)
        if deviation is not None and level[name] - estimate.value > deviation / np.sqrt(len(seeds)):
            raised.append(name)
    raised.sort(key=lambda name: estimates[name].value - level[name])
    sentences = []
    if raised:
        shown = [
            f"{name} ({percent(level[name])}, of mean errors {percent(estimates[name].value)})"
            for name in raised[:_MOST_NAMED]
        ]
        more = f" and {len(raised) - len(shown)} more" if len(raised) > len(shown) else ""
        sentences.append(
            f"Seed noise raises {measure.title} by more than its standard error: "
            f"{', '.join(shown)}{more}."
        )
    moved = _moved(level, {name: estimate.value for name, estimate in estimates.items()})
    if moved:
        sentences.append(
            f"Another place by {measure.title} of mean errors: {counted(moved, _MOST_NAMED)}."
        )
    return sentences


def _moved(level: Mapping[str, float], of_means: Mapping[str, float]) -> list[str]:
    """List the algorithms whose place changes, with both places."""
    before = _places({name: level[name] for name in of_means})
    after = _places(of_means)
    return [
        f"{name} ({before[name]} to {after[name]})"
        for name in sorted(before, key=before.__getitem__)
        if before[name] != after[name]
    ]


def _places(values: Mapping[str, float]) -> dict[str, int]:
    """Map each algorithm to its place, 1 for the lowest value."""
    order = sorted(values, key=values.__getitem__)
    return {name: place for place, name in enumerate(order, start=1)}


def expected_table(evaluation: Evaluation) -> Table:
    """List, for each algorithm and measure that noise raises, both estimates, interval and
    remaining bias.
    """
    columns = [
        Column("algorithm", key=True),
        Column("measure", key=True),
        Column(
            "of a run", unit="percent", help="mean over seeds of the measure of each training run"
        ),
        Column("of mean errors", unit="percent", help="the measure of the mean errors over seeds"),
        Column("raised by", unit="points", help="of a run less of mean errors"),
        Column("still too high by", unit="points", help="bias of the second, by the jackknife"),
    ]
    lines: list[dict[str, Any]] = []
    raised = [measure for measure in evaluation.measures.of_runs if not measure.is_mean]
    for measure in raised:
        for name, estimate in expected_measures(evaluation, measure).items():
            line: dict[str, Any] = {"algorithm": name, "measure": measure.title}
            line |= entry("of a run", estimate.of_a_run)
            if estimate.interval is None:
                line |= entry("of mean errors", estimate.value)
            else:
                line |= interval_entry("of mean errors", estimate.interval)
            line |= entry("raised by", estimate.of_a_run - estimate.value)
            line |= entry("still too high by", estimate.bias, reason="1 seed")
            lines.append(line)
    notes = [
        (
            "A worst case of noisy errors is too high: 'of a run' for any number of seeds, 'of "
            "mean errors' less with each seed. [low, high]: 95% for the expected errors, from t "
            "intervals of all environments at once (Bonferroni); wide, and left out over more "
            f"than {MOST_ENVIRONMENTS} environments. Narrower ones do not hold what they say "
            "(docs/concepts/statistics.md)."
        )
    ]
    title = "What does the noise of seeds add to worst cases?"
    return table(lines, "expected", title, columns, notes if lines else [], detail=True)

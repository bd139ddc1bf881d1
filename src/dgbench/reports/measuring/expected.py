"""Measures of the mean errors beside those of a run: what the noise of seeds adds to worst cases.

See :mod:`dgbench.analysis.expected` for what the two estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import MEASURES
from dgbench.analysis.expected import MOST_ENVIRONMENTS, RAISED_BY_NOISE, Expected, expected
from dgbench.reports.evaluation import Evaluation
from dgbench.reports.over_seeds import by_seed, line_values, means, standard_deviation
from dgbench.reports.standing import counted
from dgbench.reports.tables import Column, Table, entry, interval_entry, percent, table

#: the column beside worst+gap, and its title
OF_MEANS = "worst_gap_of_means"
OF_MEANS_TITLE = "of mean errors"
_MOST_NAMED = 3

Estimates = Mapping[str, Expected]  #: algorithm -> estimate


def expected_measures(evaluation: Evaluation, measure: str) -> dict[str, Expected]:
    """Estimate a measure of expected errors for each algorithm of one setting.

    Args:
        evaluation: of one setting.
        measure: a key of :data:`~dgbench.analysis.expected.RAISED_BY_NOISE`.

    Returns:
        Algorithm -> estimate, of those that have the measure in some seed. Seeds without it are
        left out.
    """
    role = "everywhere" if measure == "ideal" else "held_out"
    errors = evaluation.errors
    errors = errors[(errors["role"] == role) & errors["error"].notna()]
    has_measure = evaluation.studies[evaluation.studies[measure].notna()]
    seeds_of = {str(name): set(lines["seed"]) for name, lines in has_measure.groupby("algorithm")}
    # one pivot of all: of a thousand algorithms, one of each takes half a minute
    matrix = errors.pivot(index=["algorithm", "seed"], columns="env", values="error")
    values = matrix.to_numpy(dtype="float64")
    seeds = matrix.index.get_level_values("seed")
    estimates = {}
    for name, rows in sorted(matrix.groupby("algorithm", observed=True).indices.items()):
        usable = seeds_of.get(str(name), set())
        used = [int(row) for row in rows if seeds[row] in usable]
        if len(used):
            complete = ~np.isnan(values[used]).any(axis=0)
            estimates[str(name)] = expected(values[used][:, complete], measure)
    return estimates


def of_means_column() -> Column:
    """Describe the column of worst+gap of mean errors."""
    help_text = (
        "worst+gap of the mean errors over seeds: estimates that of the expected errors, while "
        "worst+gap beside it is the mean over training runs, which the noise of seeds raises"
    )
    return Column(OF_MEANS, OF_MEANS_TITLE, "percent", help_text)


def of_means_cells(estimates: Estimates, order: Sequence[str]) -> pd.DataFrame:
    """Fill the column for the algorithms of a table."""
    reason = "no worst+gap"
    cells = [
        entry(OF_MEANS, estimates[name].value)
        if name in estimates
        else entry(OF_MEANS, reason=reason)
        for name in order
    ]
    return pd.DataFrame(cells, index=list(order))


def noise_sentences(studies: pd.DataFrame, estimates: Estimates) -> list[str]:
    """Say where seed noise raises worst+gap by more than a standard error, or changes who comes
    first.

    Args:
        studies: of one setting.
        estimates: of worst+gap.
    """
    values = by_seed(studies, "worst_gap")
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
            "Seed noise raises worst+gap by more than its standard error: "
            f"{', '.join(shown)}{more}."
        )
    moved = _moved(level, {name: estimate.value for name, estimate in estimates.items()})
    if moved:
        sentences.append(
            f"Another place by worst+gap of mean errors: {counted(moved, _MOST_NAMED)}."
        )
    return sentences


def _moved(level: Mapping[str, float], of_means: Mapping[str, float]) -> list[str]:
    """List the algorithms whose place changes, with both places."""
    places = [
        {name: place for place, name in enumerate(sorted(values, key=values.__getitem__), start=1)}
        for values in ({name: level[name] for name in of_means}, of_means)
    ]
    before, after = places
    return [
        f"{name} ({before[name]} to {after[name]})"
        for name in sorted(before, key=before.__getitem__)
        if before[name] != after[name]
    ]


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
    for measure in RAISED_BY_NOISE:
        for name, estimate in expected_measures(evaluation, measure).items():
            line: dict[str, Any] = {"algorithm": name, "measure": MEASURES[measure]}
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

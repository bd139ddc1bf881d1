"""What entries of the archive and pages state in prose, as a pattern and the functions that compute
its numbers.

``statements.yaml`` has a list for each entry, of its README, and for some pages. A statement is

``says``
    text that stands there, with ``{}`` for each number; line breaks count as spaces.
``values``
    ``[function, argument, ...]`` for each of them: one of the functions below, which are all that
    there is.
``runs``, ``selection``, ``where``, ``without``, ``together``
    which entries are read (the entry itself), how steps are chosen (``last``), values of columns
    that lines have, algorithms that are left out, and whether code versions share a setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dgbench
from dgbench.analysis import kendall, spearman
from dgbench.analysis.accuracy import spread
from dgbench.analysis.components import decompose
from dgbench.analysis.correlation import correlation_difference, correlation_interval
from dgbench.reports.reading.collect import collect

RESULTS = Path(__file__).resolve().parents[2] / "results"
COEFFICIENTS = {"spearman": spearman, "kendall": kendall}
DRAWS = 10_000  #: of an interval; 1,000 leave its second digit to chance
NAMED: dict[str, tuple[Callable[..., Any], str]] = {}


def named(form: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function one that statements may name; ``form`` says how its number is written."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        NAMED[function.__name__] = (function, form)
        return function

    return register


@dataclass(frozen=True)
class Rows:
    """What a statement reads."""

    errors: pd.DataFrame  #: of `dgbench.results`
    measures: pd.DataFrame  #: of `dgbench.measures`
    entries: tuple[str, ...]

    def matrix(self, measure: str) -> pd.DataFrame:
        """Arrange a measure as algorithm x seed, in percent."""
        return 100 * self.measures.pivot(index="label", columns="seed", values=measure)

    @property
    def held_out(self) -> pd.DataFrame:
        """Return the test errors in environments that the model never saw."""
        return self.errors[(self.errors["subset"] == "test") & self.errors["env_held_out"]]


@cache
def read(
    entries: tuple[str, ...], selection: str, together: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read errors and measures of some entries,
    as one code version where they are taken together.
    """
    errors = dgbench.results([RESULTS / entry for entry in entries], selection)
    if together:
        errors = errors.assign(code="all", label=errors["algorithm"])
    return errors, dgbench.measures(errors)


def rows_of(entry: str, statement: Mapping[str, Any]) -> Rows:
    """Read the rows that a statement of an entry is about."""
    entries = tuple(statement.get("runs", [entry]))
    errors, measures = read(
        entries, statement.get("selection", "last"), statement.get("together", False)
    )
    for column, value in statement.get("where", {}).items():
        errors, measures = errors[errors[column] == value], measures[measures[column] == value]
    without = statement.get("without", [])
    return Rows(
        errors[~errors["label"].isin(without)], measures[~measures["label"].isin(without)], entries
    )


def said(entry: str, statement: Mapping[str, Any]) -> str:
    """Write the statement with the numbers that the rows give; halves of a last digit are rounded
    up.
    """
    rows = rows_of(entry, statement)
    texts = []
    for name, *arguments in statement["values"]:
        function, form = NAMED[name]
        number = function(rows, *arguments)
        if isinstance(number, float):
            number += math.copysign(1e-9, number)
        texts.append(format(number, form))
    return str(statement["says"]).format(*texts)


@named(".0f")
def models(rows: Rows) -> int:
    """Count the trained models."""
    return int(rows.errors.groupby(["run", "folder"]).ngroups)


@named(".0f")
def algorithms(rows: Rows) -> int:
    return int(rows.errors["label"].nunique())


@named(".1f")
def accuracy(rows: Rows, label: str, env: str | None = None) -> float:
    """Average the accuracy over seeds, in percent; without an environment over held-out
    environments too.
    """
    lines = rows.held_out[rows.held_out["label"] == label]
    by_env = lines.groupby("env")["error"].mean()
    return float(100 * (1 - (by_env.mean() if env is None else by_env[env])))


@named(".1f")
def accuracy_error(rows: Rows, label: str) -> float:
    """Compute the standard error of the average accuracy over seeds or searches, in DomainBed's
    form.
    """
    lines = rows.held_out[rows.held_out["label"] == label]
    repetitions = lines.groupby(["seed", "trial"])["error"].mean()
    return 100 * (spread(repetitions.tolist(), "domainbed") or 0.0)


@named(".1f")
def search(rows: Rows, label: str, trial: int) -> float:
    """Return the accuracy of what one search of an algorithm chooses, in percent."""
    lines = rows.held_out[(rows.held_out["label"] == label) & (rows.held_out["trial"] == trial)]
    return float(100 * (1 - lines["error"].mean()))


@named(".1f")
def accuracy_difference(rows: Rows, first: str, second: str, env: str | None = None) -> float:
    """Subtract the second algorithm's accuracy from the first's, in points."""
    return accuracy(rows, first, env) - accuracy(rows, second, env)


@named(".1f")
def highest_accuracy(rows: Rows) -> float:
    return max(accuracy(rows, label) for label in rows.errors["label"].unique())


@named(".1f")
def lowest_accuracy(rows: Rows) -> float:
    return min(accuracy(rows, label) for label in rows.errors["label"].unique())


@named(".1f")
def mean(rows: Rows, measure: str, label: str) -> float:
    """Average a measure of an algorithm over seeds, in percent."""
    return float(rows.matrix(measure).loc[label].mean())


@named(".1f")
def deviation(rows: Rows, measure: str, label: str) -> float:
    """Compute the standard deviation of a measure over seeds, in points."""
    return float(rows.matrix(measure).loc[label].std(ddof=1))


@named(".1f")
def value(rows: Rows, measure: str, label: str, seed: int) -> float:
    return float(rows.matrix(measure).loc[label, seed])


@named(".1f")
def difference(rows: Rows, measure: str, first: str, second: str) -> float:
    """Subtract the second algorithm's mean from the first's, in points."""
    return mean(rows, measure, first) - mean(rows, measure, second)


@named(".1f")
def moves(rows: Rows, measure: str, component: str, end: str = "estimate") -> float:
    """Compute how many points a component moves a measure, see ``report=components``.

    Args:
        rows: of the studies; those that lack an adaptation that others have are left out.
        measure: by its name.
        component: a factor, ``combinations`` or ``seed``.
        end: ``estimate``, ``low`` or ``high``.
    """
    lines = rows.measures
    about = rows.errors.drop_duplicates("label").set_index("label")
    levels = {name: lines[name] for name in ("backbone", "tuning")}
    for name in ("algorithm", "adaptation"):
        levels[name] = lines["label"].map(about[name])
    varying = {name: values for name, values in levels.items() if values.nunique() > 1}
    adapted = "adaptation" if "adaptation" in varying else None
    complete = pd.Series(True, index=lines.index)
    if adapted:
        models = [varying[name] for name in varying if name != adapted] + [lines["seed"]]
        count = varying[adapted].groupby(models).transform("nunique")
        complete = count == varying[adapted].nunique()
    values = 100 * lines[measure][complete]
    factors = {name: column[complete].tolist() for name, column in varying.items()}
    result = decompose(values, factors, lines["seed"][complete].tolist(), adapted)
    (one,) = [part for part in result.components if part.name == component]
    return float(getattr(one.moves, end))


@named(".1f")
def adapted_mean(rows: Rows, measure: str, adaptation: str) -> float:
    """Average a measure over all studies with an adaptation at test time, in percent."""
    levels = rows.errors.drop_duplicates("label").set_index("label")["adaptation"]
    lines = rows.measures[rows.measures["label"].map(levels) == adaptation]
    return float(100 * lines[measure].mean())


@named("")
def lowest(rows: Rows, measure: str, place: int = 1) -> str:
    """Name the algorithm with the lowest mean, or that of another place."""
    return str(rows.matrix(measure).mean(axis=1).sort_values().index[place - 1])


@named(".1f")
def cost(rows: Rows, measure: str, seed: int | None = None) -> float:
    """Compute the ideal error lost by the algorithm that a measure selects, for a seed or the mean
    over seeds.
    """
    chosen, ideal = rows.matrix(measure), rows.matrix("ideal")
    values = chosen.mean(axis=1) if seed is None else chosen[seed]
    ideals = ideal.mean(axis=1) if seed is None else ideal[seed]
    return float(ideals[values.idxmin()] - ideals.min())


@named(".2f")
def correlation(rows: Rows, measure: str, coefficient: str = "spearman") -> float:
    """Average over seeds the rank correlation of a measure with the ideal one."""
    return float(np.mean(_by_seed(rows, measure, coefficient)))


@named(".2f")
def correlation_deviation(rows: Rows, measure: str, coefficient: str = "spearman") -> float:
    return float(np.std(_by_seed(rows, measure, coefficient), ddof=1))


@named(".2f")
def correlation_of_seed(rows: Rows, measure: str, seed: int) -> float:
    return dict(zip(rows.matrix(measure), _by_seed(rows, measure, "spearman"), strict=True))[seed]


def _by_seed(rows: Rows, measure: str, coefficient: str) -> list[float]:
    values, ideal = rows.matrix(measure), rows.matrix("ideal")
    return [
        COEFFICIENTS[coefficient](values[seed].tolist(), ideal[seed].tolist()) for seed in values
    ]


@named(".2f")
def correlation_end(rows: Rows, measure: str, end: str) -> float:
    """Return the ``low`` or ``high`` end of the 95% interval of a Spearman correlation."""
    ideal = rows.matrix("ideal")
    generator = np.random.default_rng(0)
    return float(
        getattr(correlation_interval(rows.matrix(measure), ideal, generator, draws=DRAWS), end)
    )


@named(".2f")
def lead(rows: Rows, what: str, measure: str = "worst_gap") -> float:
    """Return ``estimate``, ``low`` or ``high`` of a measure's Spearman correlation less that of the
    average.
    """
    return _lead(rows, what, measure, "average")


@named(".2f")
def lead_over(rows: Rows, what: str, measure: str, other: str) -> float:
    return _lead(rows, what, measure, other)


def _lead(rows: Rows, what: str, measure: str, other: str) -> float:
    matrices = [rows.matrix(name) for name in (measure, other, "ideal")]
    return float(
        getattr(correlation_difference(*matrices, np.random.default_rng(0), draws=DRAWS), what)
    )


@named(".1f")
def validation(rows: Rows, end: str) -> float:
    """Return the ``min`` or ``max`` over models of the accuracy on validation images of training,
    mean over domains.
    """
    lines = rows.errors[(rows.errors["subset"] == "val") & ~rows.errors["env_held_out"]]
    return float(100 * (1 - lines.groupby(["run", "folder"])["error"].mean()).agg(end))


@named(".1f")
def range_of_draws(rows: Rows, end: str) -> float:
    """Return the ``min`` or ``max`` over searches of how far apart test accuracies of their draws
    lie at the end.
    """
    collection = collect([RESULTS / entry for entry in rows.entries])
    keys = ("seed", "fold", "draw")
    runs = pd.DataFrame([{key: run.identity[key] for key in keys} for run in collection.runs])
    lines = collection.rows.join(runs, on="run")
    lines = lines[
        (lines["step"] == lines["step"].max()) & (lines["subset"] == "test") & lines["env_held_out"]
    ]
    accuracies = (
        (100 * (1 - lines["wrong"] / lines["seen"]))
        .groupby([lines[key] for key in keys])
        .mean()
        .unstack()
    )
    return float((accuracies.max(axis=1) - accuracies.min(axis=1)).agg(end))


@named(".0f")
def gap_needed(rows: Rows) -> int:
    """Count the studies whose ideal error worst+gap bounds and the worst error alone does not."""
    ideal = rows.measures["ideal"]
    return int(((rows.measures["worst"] < ideal) & (rows.measures["worst_gap"] >= ideal)).sum())


@named(".2f")
def relative_gap(rows: Rows, label: str, env: str) -> float:
    """Compute Yu's gap: accuracy of linear probing less that of fine-tuning, over that of
    fine-tuning.
    """
    lines = rows.held_out[(rows.held_out["algorithm"] == label) & (rows.held_out["env"] == env)]
    of_tuning = 1 - lines.groupby("tuning")["error"].mean()
    return float((of_tuning["lp"] - of_tuning["ft"]) / of_tuning["ft"])


@named(".0f")
def studies(rows: Rows) -> int:
    return int(rows.measures["ideal"].notna().sum())

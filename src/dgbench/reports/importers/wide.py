"""Tables with a column for each environment, as lines; what is no environment is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgbench.reports.importers.cells import Floats, letters, parsed, words_of
from dgbench.reports.importers.columns import Columns
from dgbench.reports.importers.spelling import alike
from dgbench.reports.reading.folders import Problem
from dgbench.validation import shown, some_of

_AVERAGES = {"avg", "average", "mean", "averageaccuracy", "avgacc", "meanacc", "averageacc"}
_MOST_COUNTED = 3  # columns of whole numbers; of many, some are of accuracies by chance
_FEWEST_LINES = 3  # from which the values of a column tell what it holds
#: words of the names of columns that hold no accuracy of an environment
_NO_ENVIRONMENT = {
    *("param", "params", "parameters", "nparams", "paramcount", "#params", "#p", "size"),
    *("time", "hours", "seconds", "minutes", "runtime", "latency", "throughput", "fps"),
    *(
        "flops",
        "gflops",
        "mflops",
        "macs",
        "gmacs",
        "memory",
        "mem",
        "gpu",
        "gpus",
        "cost",
        "price",
    ),
    *("year", "date", "rank", "ranking", "id", "index", "idx", "count", "seeds", "runs"),
    *("epoch", "epochs", "iterations", "lr", "batch", "resolution", "loss", "nll", "ece"),
    *("std", "stderr", "se", "sd", "sem", "ci", "err"),
    *("worst", "best", "min", "max", "median", "gap", "drop", "delta", "diff"),
}


def lengthen(table: Columns, values: str | None, inside: Sequence[str] = ()) -> None:
    """Turn the columns of environments, if each has one, into lines: one for each environment.

    Args:
        table: whose columns are known.
        values: what these columns hold, ``error`` or ``accuracy`` (None).
        inside: those that the user calls in distribution.

    Raises:
        RecordError: no column is the algorithm; or none is the environment, and none may be that
            of one; or a column may be no environment.
    """
    if "algorithm" not in table.column:
        raise table.missing("algorithm")
    named = table.column.get("environment")
    if "environment" not in table.column and "held_out" in table.column:
        table.column["environment"] = table.column["held_out"]
    if "environment" in table.column and not isinstance(named, (list, tuple)):
        return
    averages: list[Any] = []
    if named is None:
        names, averages = _columns_of_numbers(table)
    else:
        names = list(named)
    if len(names) < 2 or {"error", "accuracy", "wrong"} & table.column.keys():
        raise table.missing("environment")
    if named is None:
        _ask(table, [name for name in names if str(name) not in inside])
    for name in averages:
        _check_average(table, name, names)
    holds = values or "accuracy"
    table.assume(
        f"one column for each environment: {', '.join(map(str, names))}; they hold {holds}"
    )
    heading = f"{holds} (%)" if any("%" in str(name) for name in names) else holds
    melted = {*names, *averages}
    id_columns = [name for name in table.frame if name not in melted]
    table.frame = table.frame.melt(id_columns, names, "environment", heading)
    table.column |= {"environment": "environment", holds: heading}
    table.wide = True


def _columns_of_numbers(table: Columns) -> tuple[list[Any], list[Any]]:
    """List the columns that may be environments, and those that print an average of them."""
    used = {*table.column.values(), *table.hparams.values()}
    free = [name for name in table.frame if name not in used]
    named = [name for name in free if not str(name).startswith("Unnamed: ")]
    numbers = [name for name in named if table.holds_numbers(name)]
    averages = [name for name in numbers if letters(name) in _AVERAGES]
    names = [name for name in numbers if name not in averages]
    if not averages:
        averages = _computed_averages(table, names)
        names = [name for name in names if name not in averages]
    return names, averages


def _computed_averages(table: Columns, names: Sequence[Any]) -> list[Any]:
    """Find the last column if it holds the mean of the others in every line, up to its rounding."""
    if len(names) < 3 or len(table.frame) < 2:
        return []
    values = _matrix(table, names)
    if np.isnan(values).any() or (np.ptp(values, axis=1) == 0).all():
        return []
    means = values[:, :-1].mean(axis=1)
    equal = np.abs(means - values[:, -1]) <= _rounding(values[:, -1])
    return [names[-1]] if equal.all() else []


def _matrix(table: Columns, names: Sequence[Any]) -> Floats:
    return np.column_stack([parsed(table.frame[name]) for name in names])


def _means(values: Floats) -> Floats:
    """Average each line over the cells that it has: several tables may differ in environments."""
    counts = (~np.isnan(values)).sum(axis=1)
    totals = np.nansum(values, axis=1)
    means = np.full(len(values), np.nan)
    np.divide(totals, counts, out=means, where=counts > 0)
    return means


def _rounding(printed: Floats) -> float:
    return 0.1 if np.nanmax(printed) > 1 else 0.001


def _ask(table: Columns, names: Sequence[Any]) -> None:
    """Ask about columns whose name or values are not those of accuracies in an environment.

    Raises:
        RecordError: there are some.
    """
    values = _matrix(table, names)
    bars = [not np.isnan(parsed(table.frame[name], "error")).all() for name in names]
    long_enough = len(values) >= _FEWEST_LINES
    whole = ((values == np.round(values)) | np.isnan(values)).all(axis=0)
    counted = whole if whole.sum() <= _MOST_COUNTED else np.zeros_like(whole)
    reasons: dict[Any, str] = {}
    spelled_twice = alike(names)  # which of them is meant is asked when they are read
    for place, name in enumerate(names):
        if name in spelled_twice:
            continue
        column = values[:, place]
        if _NO_ENVIRONMENT & {*words_of(name)} or letters(name) in _NO_ENVIRONMENT:
            reasons[name] = "by its name"
        elif np.nanmedian(column) < 0 or np.nanmedian(column) > 100:
            reasons[name] = "not between 0 and 100"
        elif any(bars) and not bars[place]:
            reasons[name] = "without the error bars that others have"
        elif long_enough and counted[place] and whole.mean() < 0.5:
            reasons[name] = "whole numbers where others have decimals"
        elif long_enough and np.nanmin(column) == np.nanmax(column):
            reasons[name] = "the same in every line"
    if not reasons:
        return
    asked = some_of([f"{name} ({reason})" for name, reason in reasons.items()], 8)
    left = [name for name in names if name not in reasons]
    raise table.refusal(
        f"columns that may be no environment: {asked}",
        f"leave them out with import.ignore={shown(list(reasons))}, or name the environments with "
        f"import.columns.environment={shown(left or list(names))}",
    )


def _check_average(table: Columns, name: Any, names: Sequence[Any]) -> None:
    """Say that a printed average is not read, and where it is not that of its line."""
    values = _matrix(table, names)
    printed = parsed(table.frame[name])
    means = _means(values)
    apart = np.abs(means - printed) > _rounding(printed)
    table.assume(f"column {name} is not read: an average of the environments")
    if apart.any():
        row = int(np.argmax(apart))
        text = (
            f"{name}: {table.place(row)} prints {printed[row]:g}, its environments average "
            f"{means[row]:.4g}"
        )
        table.problems.append(Problem("average", table.where, text))

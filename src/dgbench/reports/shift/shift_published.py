"""What papers printed for a dataset, and how far that is from an estimate."""

from __future__ import annotations

import math
from typing import Any

from dgbench.errors import ConfigError
from dgbench.reports.published import Published, published, shifts
from dgbench.reports.shift.shift_estimates import ShiftLine, ShiftSetting
from dgbench.reports.tables import entry

OTHER_FEATURES = "(other features)"
FROZEN = "frozen"
FOLDS = "folds"
#: what stands beside the estimators that have no choice of sources
COVARIATE_AND_CONCEPT, DISTANCES, PRETRAINING = "zhang2023_table1", "ye2022_table3", "yu2024_table2"


def published_shifts(name: str | None) -> Published | None:
    """The table of diversity and correlation shift of that name; None for None.

    Raises:
        ConfigError: there is no such table.
    """
    if name is None:
        return None
    if name not in shifts():
        raise ConfigError(f"report.published={name} is no table of shifts; choose one of {', '.join(shifts())}")
    return published(name)


def other_features(setting: ShiftSetting) -> str:
    """What marks printed numbers: the papers trained the features that their estimates are of."""
    return OTHER_FEATURES if setting.identity["features"] == FROZEN else ""


def printed(table: Published | None, row: str, column: str, name: str, flag: str = "") -> dict[str, Any]:
    """A printed value as part of a line; an empty one where the table has none.

    Args:
        table: of a paper.
        row: dataset, ``DATASET/ENVIRONMENT`` or ``DATASET/PAIR``.
        column: of the table.
        name: of the column that it becomes.
        flag: stands after it.
    """
    value = table.values.get(row.replace(" ", "_"), {}).get(column) if table else None
    return entry(name) if value is None else entry(name, value.mean, std=value.error, flag=flag)


def printed_row(line: ShiftLine) -> str:
    """The row of a table of whole datasets; those are of the folds of a protocol, never of every two environments."""
    return str(line.identity["dataset"]) if line.identity["pairs"] == FOLDS else ""


def pair_rows(line: ShiftLine, pair: str) -> tuple[str, str]:
    """The row of a table of pairs; distances are symmetric, so it may be under either order."""
    dataset, swapped = line.identity["dataset"], "|".join(reversed(pair.split("|")))
    return f"{dataset}/{pair}", f"{dataset}/{swapped}"


def points(table: Published) -> dict[str, tuple[float, float]]:
    """Dataset -> its place in the plane, diversity first."""
    return {row: (line["div"].mean, line["cor"].mean) for row, line in table.values.items()}


def nearest(div: float, cor: float, table: Published) -> tuple[str, float]:
    """The dataset whose printed place is nearest (Euclidean), and its distance."""
    apart = {row: math.dist((div, cor), place) for row, place in points(table).items()}
    name = min(apart, key=lambda row: (apart[row], row))
    return name, apart[name]


def short_source(table: Published) -> str:
    """``Yu et al. 2024, Table 2``."""
    paper, *_, place = table.source.split(", ")
    return f"{paper}, {place}"


def caution(setting: ShiftSetting, table: Published) -> str:
    """Why printed numbers may not be compared with a setting's without thought."""
    unlike = []
    if setting.identity["estimator"] != "ood_bench":
        unlike.append("another estimator")
    if setting.formula != table.formula:
        unlike.append(f"other formulas ({table.formula}, here {setting.formula})")
    if other_features(setting):
        unlike.append("features trained with the estimate, here frozen ones")
    words = f" They come from {', and '.join(unlike)}: compare the order, not the size." if unlike else ""
    return f"Published: {table.source}; {table.note}.{words}"

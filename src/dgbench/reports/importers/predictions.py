"""Predictions of others, a line for each image, counted to errors by environment.

model-vs-human writes such files, and others like them: the true and the predicted class of an
image, which model answered, and under which condition. An answer that is no class, as ``na``, is
wrong; a line without one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from dgbench.reports.importers.cells import text_of
from dgbench.reports.importers.columns import Columns
from dgbench.reports.importers.lines import lines_of_counts
from dgbench.reports.importers.runs import collection_of
from dgbench.reports.importers.spelling import check_spelling
from dgbench.reports.importers.table import read_columns
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.validation import some_of

#: what a column holds -> letters and digits of its usual names, as for tables
ALIASES = {
    "algorithm": "algorithm | algo alg method model subj subject approach",
    "environment": "environment env domain | condition corruption",
    "label": "label ytrue truth | category target groundtruth trueclass y",
    "predicted": "predicted ypred prediction | objectresponse response pred predictedclass",
    "seed": "seed trialseed",
    "dataset": "dataset | benchmark experiment",
    "image": "image imagename | file filename path",
}
_MODEL = ("dataset", "algorithm", "seed", "environment")


def read_predictions_of_others(
    path: Any,
    columns: Mapping[str, Any] | None = None,
    algorithm: str | None = None,
    dataset: str | None = None,
    classes: int | None = None,
    where: Mapping[str, Any] | None = None,
    part: Any = None,
    algorithm_from: str | None = None,
    environment_from: str | None = None,
    dataset_from: str | None = None,
    rename: Mapping[str, str] | None = None,
) -> Collection:
    """Read the predictions of models of others, and count their errors.

    Args:
        path: a file, a folder of files, several, or a data frame; a line is one image.
        columns: key of :data:`ALIASES` -> name of the column that holds it; None: no column does.
        algorithm: what predicted everything, where no column says it.
        dataset: its name where no column says it.
        classes: number of classes, for what a blind guess achieves; None where it is not known.
        where: column -> value, or several, of the lines that are read.
        part: sheet of a workbook, by name or number; or a list.
        algorithm_from, environment_from, dataset_from: ``file`` or ``part``, whose name says it.
        rename: as of :func:`~dgbench.reports.importers.table.read_table`.

    Raises:
        ConfigError: an argument is unknown, or names what the table does not have.
        RecordError: there is no table, or a column or value of it cannot be used.
    """
    problems: list[Problem] = []
    table = read_columns(
        path,
        problems,
        ALIASES,
        part,
        {"algorithm": algorithm_from, "environment": environment_from, "dataset": dataset_from},
        rename,
    )
    table.keep(where or {})
    table.find(columns or {})
    if algorithm is not None:
        table.add("algorithm", algorithm)
    if dataset is not None:
        table.add("dataset", dataset)
    counted = errors_of_images(table)
    lines = lines_of_counts(table, counted)
    check_spelling(table, lines)
    return collection_of(table, lines, classes)


def predictions_of_one(path: Any) -> tuple[pd.Series[str], pd.Series[str], pd.Series[str]]:
    """Read the true and predicted classes, and the environments, of the images of one model.

    Args:
        path: of a file of predictions.

    Raises:
        RecordError: it cannot be read, or is of several models.
    """
    table = read_columns(path, [], ALIASES)
    table.find({})
    for key in ("environment", "label", "predicted"):
        if key not in table.column:
            raise table.missing(key)
    if "algorithm" in table.column:
        names = table.names("algorithm").unique()
        if len(names) > 1:
            raise table.refusal(
                f"it holds predictions of {len(names)} models, {some_of(names.tolist())}",
                "give the columns of one, or judge all with import=predictions",
            )
    true, predicted = classes_of(table)
    return true, predicted, table.names("environment")


def errors_of_images(table: Columns) -> pd.DataFrame:
    """Count the images of each model and environment, and the wrong ones among them.

    Returns:
        columns ``dataset``, ``algorithm``, ``seed``, ``environment``, ``n`` and ``wrong``.

    Raises:
        RecordError: a column is missing, a cell is empty, or an image is there twice.
    """
    for key in ("algorithm", "environment", "label", "predicted"):
        if key not in table.column:
            raise table.missing(key)
    lines = pd.DataFrame({key: table.names(key) for key in ("algorithm", "environment")})
    lines["dataset"] = table.names("dataset") if "dataset" in table.column else table.title
    lines["seed"] = table.whole("seed") if "seed" in table.column else 0
    true, predicted = classes_of(table)
    lines["wrong"] = true.to_numpy() != predicted.to_numpy()
    _check_images(table, lines)
    groups = lines.groupby(list(_MODEL), sort=False)["wrong"]
    counted = groups.agg(n="size", wrong="sum").reset_index()
    text = f"{len(lines)} predictions of {lines['algorithm'].nunique()} algorithms, counted"
    table.assume(text)
    return counted


def classes_of(table: Columns) -> tuple[pd.Series[str], pd.Series[str]]:
    """Read the true and the predicted class of each image, as text: 3.0 and 3 are one class.

    Raises:
        RecordError: a cell is empty, or no class that is predicted is a true one.
    """
    true = table.names("label").map(text_of)
    predicted = table.names("predicted").map(text_of)
    if not predicted.isin(true.unique()).any():
        raise table.refusal(
            f"{table.column['predicted']} holds {predicted.iloc[0]}, no class of "
            f"{table.column['label']} ({true.iloc[0]})",
            "write classes alike, as names or as numbers",
        )
    return true, predicted


def _check_images(table: Columns, lines: pd.DataFrame) -> None:
    """Refuse an image that a model predicts twice.

    Raises:
        RecordError: there is one.
    """
    if "image" not in table.column:
        return
    repeated = lines.assign(image=table.names("image")).duplicated([*_MODEL, "image"])
    if repeated.any():
        who = lines[repeated.to_numpy()].iloc[0]
        fault = f"predicted before, by {who['algorithm']} in {who['environment']}"
        table.refuse(
            repeated, "image", fault, "name the column that tells them apart, seed or image"
        )

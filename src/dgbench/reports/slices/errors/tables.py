"""Tables of ``report=errors``: by algorithm, environment, class, group and confused pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pandas as pd

from dgbench.reports.labels import slug
from dgbench.reports.slices.errors.images import BINS, FEW, Counts
from dgbench.reports.tables import Column, Table, entry, percent, table

ByAlgorithm = Mapping[str, Counts]

MOST_CLASSES = 30  # of a confusion matrix that is a table
_MOST_GROUPS = 15  # listed of each algorithm
_MOST_PAIRS = 10  # confusions listed of each algorithm
_NO_AUROC = "predictions hold the 10 most probable classes, AUROC needs the probabilities of all"

_ADJUSTED = "adjusted."  # before the name of an attribute

_ALGORITHM = Column("algorithm", key=True)
_ENVIRONMENT = Column("env", "environment", key=True)
_CLASS = Column("class", key=True)
_IMAGES = Column("images", unit="count")
_MEASURES = (
    Column("macro_f1", "macro-F1", "percent", help="mean F1 of the classes that the labels hold"),
    Column(
        "auroc",
        "AUROC",
        "percent",
        help="one class against the rest, mean over classes, then models",
    ),
    Column("ece", "ECE", "percent", help=f"expected calibration error, {BINS} bins of equal width"),
    Column(
        "excess", "confidence minus accuracy", "points", help="in points; above 0 is overconfident"
    ),
)


def overall_table(counts: ByAlgorithm) -> Table:
    """List the errors of every algorithm, one line each, most accurate first."""
    lines: list[dict[str, Any]] = []
    adjusted: dict[str, None] = {}
    for algorithm, counted in counts.items():
        adjusted |= dict.fromkeys(counted.adjusted())
        lines.append(_overall_line(algorithm, counted))
    columns = [
        _ALGORITHM,
        Column("accuracy", unit="percent", help="of all tested images alike"),
        Column(
            "average",
            "average over environments",
            "percent",
            help="mean of the environments' accuracies",
        ),
        *_adjusted_columns(list(adjusted)),
        *_MEASURES,
        Column(
            "worst",
            "worst group",
            "percent",
            help=f"lowest accuracy of a class in an environment, n >= {FEW}",
        ),
        Column("group", "which is"),
        Column("images", "images", "count", help="tested in one seed"),
        Column("seeds", "seeds", "count"),
    ]
    lines.sort(key=lambda line: -line["accuracy"])
    repeated = any(line["seeds"] > 1 for line in lines)
    notes = ["Mean ± standard deviation (divisor n-1) over seeds."] if repeated else []
    without_auroc = [line["auroc.reason"] for line in lines if "auroc.reason" in line]
    if without_auroc:
        notes.append(f"AUROC is left out: {without_auroc[0]}.")
    notes += dict.fromkeys(chain.from_iterable(counted.reasons for counted in counts.values()))
    notes.append(
        "Whether two algorithms can be told apart is said by report=measures and "
        "report=leaderboard."
    )
    return table(lines, "errors", "Errors on held-out test images", columns, notes)


def _overall_line(algorithm: str, counts: Counts) -> dict[str, Any]:
    """Summarize one algorithm over all its test images."""
    measures = counts.measures()
    measures["average"] = counts.measures("env")["accuracy"].groupby("repetition").mean()
    known = {
        _ADJUSTED + name: values
        for name, values in counts.adjusted().items()
        if len(values) == len(measures)
    }
    names = ("accuracy", "average", "macro_f1", "auroc", "ece", "excess")
    worst = counts.worst_group()
    return {
        "algorithm": algorithm,
        **_over_seeds(measures, names),
        **_over_seeds(pd.DataFrame(known), known),
        "worst": worst["accuracy"] if worst else None,
        "group": worst["name"] if worst else None,
        "images": measures["images"].mean(),
        "seeds": len(measures),
    }


def _adjusted_columns(attributes: Sequence[str]) -> list[Column]:
    """List a column for each attribute by which an adjusted average is known."""
    columns = []
    for name in attributes:
        title = f"adjusted average ({name})" if len(attributes) > 1 else "adjusted average"
        meaning = (
            f"accuracies of class and {name}, weighed by shares of the training images (Sagawa et "
            "al. 2020)"
        )
        columns.append(Column(_ADJUSTED + name, title, "percent", help=meaning))
    return columns


def environment_table(counts: ByAlgorithm) -> Table:
    """List the measures of every algorithm in each environment."""
    names = ("accuracy", "macro_f1", "auroc", "ece", "excess")
    lines = []
    for algorithm, counted in counts.items():
        for env, measures in counted.measures("env").groupby("env", sort=False):
            line = {"algorithm": algorithm, "env": env, **_over_seeds(measures, names)}
            lines.append({**line, "images": measures["images"].mean()})
    without_help = [replace(column, help="") for column in _MEASURES]
    columns = [_ALGORITHM, _ENVIRONMENT, Column("accuracy", unit="percent"), *without_help, _IMAGES]
    return table(lines, "environments", "Errors by environment", columns)


def class_table(counts: ByAlgorithm) -> Table:
    """List the accuracy of each class in each environment."""
    lines = []
    every = chain.from_iterable(counted.environments for counted in counts.values())
    envs = list(dict.fromkeys(every))
    for algorithm, counted in counts.items():
        groups = {
            (group["label"], group["env"]): group
            for group in counted.groups(attributes=False).to_dict("records")
        }
        for label, name in enumerate(counted.classes):
            line: dict[str, Any] = {"algorithm": algorithm, "class": name}
            for env in envs:
                group = groups.get((label, env))
                if group:
                    flag = f"(n={group['n']:.0f})" if group["n"] < FEW else ""
                    line |= entry(f"in {env}", group["accuracy"], flag=flag)
                else:
                    line |= entry(f"in {env}", reason="no such images")
            lines.append(line)
    columns = [_ALGORITHM, _CLASS, *(Column(f"in {env}", env, "percent") for env in envs)]
    notes = [f"n is named where a class has fewer than {FEW} images in an environment."]
    return table(lines, "classes", "Accuracy of each class by environment", columns, notes)


def group_table(counts: ByAlgorithm) -> Table:
    """List the groups with the lowest accuracy, then those that are too small to be called the
    worst.
    """
    lines: list[dict[str, Any]] = []
    for algorithm, counted in counts.items():
        groups = counted.groups()
        for size, flag in (("n >= @FEW", ""), ("n < @FEW", "(few images)")):
            for group in groups.query(size).head(_MOST_GROUPS).to_dict("records"):
                attribute = None
                if group["attribute"]:
                    attribute = f"{group['attribute']}={group['value']}"
                line = {
                    "algorithm": algorithm,
                    "env": group["env"],
                    "class": counted.classes[group["label"]],
                    "attribute": attribute,
                    **entry("accuracy", group["accuracy"], flag=flag),
                    "images": group["n"],
                }
                lines.append(line)
    columns = [
        _ALGORITHM,
        _ENVIRONMENT,
        _CLASS,
        Column("attribute", key=True),
        Column("accuracy", unit="percent"),
    ]
    columns.append(_IMAGES)
    if not any(line["attribute"] for line in lines):
        columns = [column for column in columns if column.name != "attribute"]
    notes = [
        (
            f"The {_MOST_GROUPS} lowest of each algorithm; groups of fewer than {FEW} images "
            "stand last and are not called the worst."
        )
    ]
    attributes = sorted(set().union(*(counted.many for counted in counts.values())))
    if attributes:
        notes.append(f"Attributes of too many values to be groups: {', '.join(attributes)}.")
    return table(lines, "groups", "Groups with the lowest accuracy", columns, notes)


def pair_table(counts: ByAlgorithm) -> Table:
    """List which class is most often taken for which."""
    lines = []
    for algorithm, counted in counts.items():
        for pair in counted.confusions()[:_MOST_PAIRS]:
            names = {
                "class": counted.classes[pair["label"]],
                "predicted": counted.classes[pair["predicted"]],
            }
            lines.append(
                {"algorithm": algorithm, **names, "images": pair["n"], "share": pair["share"]}
            )
    columns = [
        _ALGORITHM,
        _CLASS,
        Column("predicted", "taken for", key=True),
        Column("images", "images", "count", help="mean over seeds"),
        Column("share", "of the class", "percent"),
    ]
    return table(
        lines,
        "confusions",
        "Most frequent confusions",
        columns,
        [f"The {_MOST_PAIRS} most frequent."],
    )


def confusion_table(algorithm: str, counts: Counts) -> Table | None:
    """Count images by true class (lines) and predicted class, with percent of the line.

    Returns None if there are very many classes.
    """
    if len(counts.classes) > MOST_CLASSES:
        return None
    lines = []
    for name, row in zip(counts.classes, counts.matrix(), strict=True):
        line: dict[str, Any] = {"class": name}
        for predicted, n in zip(counts.classes, row.tolist(), strict=True):
            share = f"{percent(n / row.sum(), 0)}%" if n else ""
            line |= entry(f"as {predicted}", n, flag=share)
        lines.append({**line, "images": float(row.sum())})
    columns = [
        _CLASS,
        *(Column(f"as {predicted}", unit="count") for predicted in counts.classes),
        _IMAGES,
    ]
    notes = [
        (
            "Lines are true classes, columns predicted ones; images (mean over seeds), percent of "
            "the line."
        )
    ]
    return table(
        lines,
        f"confusion_{slug(algorithm)}",
        f"Confusion matrix of {algorithm}",
        columns,
        notes,
        detail=True,
    )


def _over_seeds(measures: pd.DataFrame, names: Iterable[str]) -> dict[str, Any]:
    """Compute mean and sample standard deviation of each column.

    A column with a value that is not defined has the reason instead.
    """
    cells: dict[str, Any] = {}
    for name in names:
        values = measures[name]
        if values.isna().any():
            reason = _NO_AUROC if name == "auroc" else "the images are of one class"
            cells |= entry(name, reason=reason)
        else:
            deviation = values.std() if len(values) > 1 else None
            cells |= entry(name, values.mean(), std=deviation)
    return cells

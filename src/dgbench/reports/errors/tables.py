"""Tables of ``report=errors``: each is made of the counts of every algorithm of one setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from dgbench.reports.errors.images import BINS, FEW, Counts
from dgbench.reports.labels import slug
from dgbench.reports.tables import Column, Table, entry, table

ByAlgorithm = Mapping[str, Counts]

MOST_CLASSES = 30  # of a confusion matrix that is a table
_MOST_GROUPS, _MOST_PAIRS = 15, 10
_NO_AUROC = "predictions hold the 10 most probable classes, AUROC needs the probabilities of all"

_ALGORITHM = Column("algorithm", key=True)
_ENVIRONMENT = Column("env", "environment", key=True)
_CLASS = Column("class", key=True)
_IMAGES = Column("images", unit="count")
_MEASURES = (
    Column("macro_f1", "macro-F1", "percent", help="mean F1 of the classes"),
    Column("auroc", "AUROC", "percent", help="one class against the rest, mean over classes, then models"),
    Column("ece", "ECE", "percent", help=f"expected calibration error, {BINS} bins of equal width"),
    Column("excess", "confidence less accuracy", "points", help="in points; above 0 is overconfident"),
)


def overall_table(counts: ByAlgorithm) -> Table:
    """One line per algorithm, most accurate first."""
    lines: list[dict[str, Any]] = []
    for algorithm, counted in counts.items():
        measures = counted.measures()
        measures["average"] = counted.measures("env")["accuracy"].groupby("repetition").mean()
        worst = counted.worst_group()
        lines.append(
            {
                "algorithm": algorithm,
                **_over_seeds(measures, ("accuracy", "average", "macro_f1", "auroc", "ece", "excess")),
                "worst": worst["accuracy"] if worst else None,
                "group": worst["name"] if worst else None,
                "images": measures["images"].mean(),
                "seeds": len(measures),
            }
        )
    columns = [
        _ALGORITHM,
        Column("accuracy", unit="percent", help="of all tested images alike"),
        Column("average", "average over environments", "percent", help="mean of the environments' accuracies"),
        *_MEASURES,
        Column("worst", "worst group", "percent", help=f"lowest accuracy of a class in an environment, n >= {FEW}"),
        Column("group", "which is"),
        Column("images", "images", "count", help="tested in one seed"),
        Column("seeds", "seeds", "count"),
    ]
    lines.sort(key=lambda line: -line["accuracy"])
    several = any(line["seeds"] > 1 for line in lines)
    notes = ["Mean ± standard deviation (divisor n-1) over seeds."] if several else []
    if reason := next((line["auroc.reason"] for line in lines if "auroc.reason" in line), ""):
        notes.append(f"AUROC is left out: {reason}.")
    notes.append("Whether two algorithms can be told apart is said by report=measures and report=leaderboard.")
    return table(lines, "errors", "Errors on held-out test images", columns, notes)


def environment_table(counts: ByAlgorithm) -> Table:
    """The same measures in each environment."""
    lines = [
        {
            "algorithm": algorithm,
            "env": env,
            **_over_seeds(measures, ("accuracy", "macro_f1", "auroc", "ece", "excess")),
            "images": measures["images"].mean(),
        }
        for algorithm, counted in counts.items()
        for env, measures in counted.measures("env").groupby("env", sort=False)
    ]
    without_help = [replace(column, help="") for column in _MEASURES]
    columns = [_ALGORITHM, _ENVIRONMENT, Column("accuracy", unit="percent"), *without_help, _IMAGES]
    return table(lines, "environments", "Errors by environment", columns)


def class_table(counts: ByAlgorithm) -> Table:
    """Accuracy of each class in each environment."""
    lines, envs = [], list(dict.fromkeys(env for counted in counts.values() for env in counted.environments))
    for algorithm, counted in counts.items():
        groups = {
            (group["label"], group["env"]): group for group in counted.groups(attributes=False).to_dict("records")
        }
        for label, name in enumerate(counted.classes):
            line: dict[str, Any] = {"algorithm": algorithm, "class": name}
            for env in envs:
                if group := groups.get((label, env)):
                    flag = f"(n={group['n']:.0f})" if group["n"] < FEW else ""
                    line |= entry(f"in {env}", group["accuracy"], flag=flag)
                else:
                    line |= entry(f"in {env}", reason="no such images")
            lines.append(line)
    columns = [_ALGORITHM, _CLASS, *(Column(f"in {env}", env, "percent") for env in envs)]
    notes = [f"n is named where a class has fewer than {FEW} images in an environment."]
    return table(lines, "classes", "Accuracy of each class by environment", columns, notes)


def group_table(counts: ByAlgorithm) -> Table:
    """The groups with the lowest accuracy, then those that are too small to be called the worst."""
    lines: list[dict[str, Any]] = []
    for algorithm, counted in counts.items():
        groups = counted.groups()
        for size, flag in (("n >= @FEW", ""), ("n < @FEW", "(few images)")):
            lines += [
                {
                    "algorithm": algorithm,
                    "env": group["env"],
                    "class": counted.classes[group["label"]],
                    "attribute": f"{group['attribute']}={group['value']}" if group["attribute"] else None,
                    **entry("accuracy", group["accuracy"], flag=flag),
                    "images": group["n"],
                }
                for group in groups.query(size).head(_MOST_GROUPS).to_dict("records")
            ]
    columns = [_ALGORITHM, _ENVIRONMENT, _CLASS, Column("attribute", key=True), Column("accuracy", unit="percent")]
    columns.append(_IMAGES)
    if not any(line["attribute"] for line in lines):
        columns = [column for column in columns if column.name != "attribute"]
    notes = [
        f"The {_MOST_GROUPS} lowest of each algorithm; groups of fewer than {FEW} images stand last and are not called "
        "the worst."
    ]
    many = sorted(set().union(*(counted.many for counted in counts.values())))
    notes += [f"Attributes of too many values to be groups: {', '.join(many)}."] if many else []
    return table(lines, "groups", "Groups with the lowest accuracy", columns, notes)


def pair_table(counts: ByAlgorithm) -> Table:
    """Which class is most often taken for which."""
    lines = []
    for algorithm, counted in counts.items():
        for pair in counted.confusions()[:_MOST_PAIRS]:
            names = {"class": counted.classes[pair["label"]], "predicted": counted.classes[pair["predicted"]]}
            lines.append({"algorithm": algorithm, **names, "images": pair["n"], "share": pair["share"]})
    columns = [
        _ALGORITHM,
        _CLASS,
        Column("predicted", "taken for", key=True),
        Column("images", "images", "count", help="mean over seeds"),
        Column("share", "of the class", "percent"),
    ]
    return table(lines, "confusions", "Most frequent confusions", columns, [f"The {_MOST_PAIRS} most frequent."])


def confusion_table(algorithm: str, counts: Counts) -> Table | None:
    """Images by true class (lines) and predicted class, with percent of the line; None for very many classes."""
    if len(counts.classes) > MOST_CLASSES:
        return None
    lines = []
    for name, row in zip(counts.classes, counts.matrix(), strict=True):
        line: dict[str, Any] = {"class": name}
        for other, n in zip(counts.classes, row.tolist(), strict=True):
            line |= entry(f"as {other}", n, flag=f"{100 * n / row.sum():.0f}%" if n else "")
        lines.append({**line, "images": float(row.sum())})
    columns = [_CLASS, *(Column(f"as {other}", unit="count") for other in counts.classes), _IMAGES]
    notes = ["Lines are true classes, columns predicted ones; images (mean over seeds), percent of the line."]
    return table(lines, f"confusion_{slug(algorithm)}", f"Confusion matrix of {algorithm}", columns, notes, detail=True)


def _over_seeds(measures: pd.DataFrame, names: Iterable[str]) -> dict[str, Any]:
    """Mean and sample standard deviation of each column; why there is none, where one of its values is not defined."""
    cells: dict[str, Any] = {}
    for name in names:
        values = measures[name]
        if values.isna().any():
            cells |= entry(name, reason=_NO_AUROC if name == "auroc" else "the images are of one class")
        else:
            cells |= entry(name, values.mean(), std=values.std() if len(values) > 1 else None)
    return cells

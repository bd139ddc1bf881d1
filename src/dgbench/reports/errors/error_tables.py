"""Tables of ``report=errors``: each is made of the counts of every algorithm and seed of one setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dgbench.reports.errors.error_counts import BINS, Counts, mean_confusion
from dgbench.reports.errors.error_groups import FEW, confusions, group_accuracies, worst_group
from dgbench.reports.labels import slug
from dgbench.reports.tables import Column, Table, entry, table

Seeds = Mapping[str, Sequence[Counts]]  # algorithm -> counts of each seed

MOST_CLASSES = 30  # of a confusion matrix that is a table
_MOST_GROUPS, _MOST_PAIRS = 15, 10
_NO_AUROC = "predictions hold the 10 most probable classes, AUROC needs the probabilities of all"
_ONE_CLASS = "the images are of one class"


def overall_table(counts: Seeds, classes: Sequence[str]) -> Table:
    """One line per algorithm, most accurate first."""
    lines = []
    for algorithm, seeds in counts.items():
        measured = [seed.of() for seed in seeds]
        by_env = [float(np.mean([seed.of([env]).accuracy for env in seed.confusion])) for seed in seeds]
        worst = worst_group(seeds)
        lines.append(
            {
                "algorithm": algorithm,
                **_over_seeds("accuracy", [each.accuracy for each in measured]),
                **_over_seeds("average", by_env),
                **_over_seeds("macro_f1", [each.macro_f1 for each in measured]),
                **_over_seeds("auroc", [each.auroc for each in measured], _NO_AUROC),
                **_over_seeds("ece", [each.ece for each in measured]),
                **_over_seeds("excess", [each.excess for each in measured]),
                "worst": worst.accuracy if worst else None,
                "group": worst.named(classes) if worst else None,
                "images": float(np.mean([each.images for each in measured])),
                "seeds": len(seeds),
            }
        )
    columns = [
        Column("algorithm", key=True),
        Column("accuracy", unit="percent", help="of all tested images alike"),
        Column("average", "average over environments", "percent", help="mean of the environments' accuracies"),
        Column("macro_f1", "macro-F1", "percent", help="mean F1 of the classes"),
        Column("auroc", "AUROC", "percent", help="one class against the rest, mean over classes, then models"),
        Column("ece", "ECE", "percent", help=f"expected calibration error, {BINS} bins of equal width"),
        Column("excess", "confidence less accuracy", "points", help="in points; above 0 is overconfident"),
        Column("worst", "worst group", "percent", help=f"lowest accuracy of a class in an environment, n >= {FEW}"),
        Column("group", "which is"),
        Column("images", "images", "count", help="tested in one seed"),
        Column("seeds", "seeds", "count"),
    ]
    lines.sort(key=lambda line: -line["accuracy"])
    return table(lines, "errors", "Errors on held-out test images", columns, _notes(lines))


def _notes(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    several = any(line["seeds"] > 1 for line in lines)
    notes = ["Mean ± standard deviation (divisor n-1) over seeds."] if several else []
    if any("auroc.reason" in line for line in lines):
        notes.append(f"AUROC is left out: {next(li['auroc.reason'] for li in lines if 'auroc.reason' in li)}.")
    return [*notes, "Whether two algorithms can be told apart is said by report=measures and report=leaderboard."]


def environment_table(counts: Seeds) -> Table:
    """The same measures in each environment."""
    lines = []
    for algorithm, seeds in counts.items():
        for env in _environments(seeds):
            own = [seed.of([env]) for seed in seeds if env in seed.confusion]
            lines.append(
                {
                    "algorithm": algorithm,
                    "env": env,
                    **_over_seeds("accuracy", [each.accuracy for each in own]),
                    **_over_seeds("macro_f1", [each.macro_f1 for each in own]),
                    **_over_seeds("auroc", [each.auroc for each in own], _NO_AUROC),
                    **_over_seeds("ece", [each.ece for each in own]),
                    **_over_seeds("excess", [each.excess for each in own]),
                    "images": float(np.mean([each.images for each in own])),
                }
            )
    columns = [
        Column("algorithm", key=True),
        Column("env", "environment", key=True),
        Column("accuracy", unit="percent"),
        Column("macro_f1", "macro-F1", "percent"),
        Column("auroc", "AUROC", "percent"),
        Column("ece", "ECE", "percent"),
        Column("excess", "confidence less accuracy", "points"),
        Column("images", "images", "count"),
    ]
    return table(lines, "environments", "Errors by environment", columns)


def class_table(counts: Seeds, classes: Sequence[str]) -> Table:
    """Accuracy of each class in each environment."""
    lines, envs = [], dict.fromkeys(env for seeds in counts.values() for env in _environments(seeds))
    for algorithm, seeds in counts.items():
        known = {each.group[2:]: each for each in group_accuracies(seeds, attributes=False)}
        for label, name in enumerate(classes):
            line: dict[str, Any] = {"algorithm": algorithm, "class": name}
            for env in envs:
                found = known.get((label, env))
                flag = f"(n={found.n:.0f})" if found and found.n < FEW else ""
                column = f"in {env}"
                line |= entry(column, found.accuracy, flag=flag) if found else entry(column, reason="no such images")
            lines.append(line)
    columns = [
        Column("algorithm", key=True),
        Column("class", key=True),
        *(Column(f"in {env}", env, "percent") for env in envs),
    ]
    notes = [f"n is named where a class has fewer than {FEW} images in an environment."]
    return table(lines, "classes", "Accuracy of each class by environment", columns, notes)


def group_table(counts: Seeds, classes: Sequence[str]) -> Table:
    """The groups with the lowest accuracy, then those that are too small to be called the worst."""
    lines = []
    for algorithm, seeds in counts.items():
        found = group_accuracies(seeds)
        large = [each for each in found if each.n >= FEW][:_MOST_GROUPS]
        small = [each for each in found if each.n < FEW][:_MOST_GROUPS]
        for each in [*large, *small]:
            name, value, label, env = each.group
            lines.append(
                {
                    "algorithm": algorithm,
                    "env": env,
                    "class": classes[label],
                    "attribute": f"{name}={value}" if name else None,
                    **entry("accuracy", each.accuracy, flag="" if each.n >= FEW else "(few images)"),
                    "images": each.n,
                }
            )
    columns = [
        Column("algorithm", key=True),
        Column("env", "environment", key=True),
        Column("class", key=True),
        Column("attribute", key=True),
        Column("accuracy", unit="percent"),
        Column("images", "images", "count"),
    ]
    if not any(line["attribute"] for line in lines):
        columns = [column for column in columns if column.name != "attribute"]
    notes = [
        f"The {_MOST_GROUPS} lowest of each algorithm; groups of fewer than {FEW} images stand last and are not called "
        "the worst."
    ]
    many = sorted({name for seeds in counts.values() for seed in seeds for name in seed.many})
    notes += [f"Attributes of too many values to be groups: {', '.join(many)}."] if many else []
    return table(lines, "groups", "Groups with the lowest accuracy", columns, notes)


def pair_table(counts: Seeds, classes: Sequence[str]) -> Table:
    """Which class is most often taken for which."""
    lines = [
        {"algorithm": algorithm, "class": classes[label], "predicted": classes[taken], "images": n, "share": share}
        for algorithm, seeds in counts.items()
        for label, taken, n, share in list(confusions(seeds))[:_MOST_PAIRS]
    ]
    columns = [
        Column("algorithm", key=True),
        Column("class", key=True),
        Column("predicted", "taken for", key=True),
        Column("images", "images", "count", help="mean over seeds"),
        Column("share", "of the class", "percent"),
    ]
    return table(lines, "confusions", "Most frequent confusions", columns, [f"The {_MOST_PAIRS} most frequent."])


def confusion_table(algorithm: str, seeds: Sequence[Counts], classes: Sequence[str]) -> Table | None:
    """Images by true class (lines) and predicted class, with percent of the line; None for very many classes."""
    if len(classes) > MOST_CLASSES:
        return None
    counted = mean_confusion(seeds)
    lines = []
    for name, row in zip(classes, counted, strict=True):
        line: dict[str, Any] = {"class": name}
        for other, n in zip(classes, row.tolist(), strict=True):
            line |= entry(f"as {other}", n, flag=f"{100 * n / row.sum():.0f}%" if n else "")
        lines.append({**line, "images": float(row.sum())})
    columns = [
        Column("class", key=True),
        *(Column(f"as {other}", f"as {other}", "count") for other in classes),
        Column("images", "images", "count"),
    ]
    notes = ["Lines are true classes, columns predicted ones; images (mean over seeds), percent of the line."]
    return table(lines, f"confusion_{slug(algorithm)}", f"Confusion matrix of {algorithm}", columns, notes, detail=True)


def _environments(seeds: Sequence[Counts]) -> list[str]:
    return list(dict.fromkeys(env for seed in seeds for env in seed.confusion))


def _over_seeds(name: str, values: Sequence[float], reason: str = _ONE_CLASS) -> dict[str, Any]:
    """Mean and sample standard deviation; why there is none, where one of them is not defined."""
    if np.isnan(values).any():
        return entry(name, reason=reason)
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return entry(name, float(np.mean(values)), std=std)

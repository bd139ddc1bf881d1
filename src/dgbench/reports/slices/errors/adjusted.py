"""The adjusted average: accuracies of groups, weighed by their shares of the training images.

It is the "average" that papers on Waterbirds publish, whose test images are balanced where those of
training are not. A group is a class beside a value of an attribute, such as the background.

Source: Sagawa et al. 2020, "Distributionally Robust Neural Networks for Group Shifts", section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from dgbench.records.predictions import ATTRIBUTE, TrainingGroups
from dgbench.validation import some_of


def adjusted_averages(
    images: pd.DataFrame, training: TrainingGroups, classes: Sequence[str]
) -> tuple[dict[str, float], list[str]]:
    """Compute the adjusted average of a run for each attribute whose training shares are known.

    Args:
        images: a line for each tested image, see
            :class:`~dgbench.reports.slices.errors.images.EnvImages`.
        training: attribute -> value -> class -> training images.
        classes: names, by label.

    Returns:
        attribute -> accuracy, a fraction; and why an attribute has none, where only some of its
        groups were tested: of one that no test image shares a value with, nothing can be said.
    """
    averages: dict[str, float] = {}
    reasons = []
    for name, by_value in training.items():
        column = ATTRIBUTE + name
        if column not in images:
            continue
        accuracy = _accuracies(images, column, classes)
        trained = {}
        for value, labels in by_value.items():
            for label, n in labels.items():
                trained[value, label] = n
        untested = [group for group in trained if group not in accuracy]
        if not untested:
            total = sum(trained.values())
            averages[name] = sum(n * accuracy[group] for group, n in trained.items()) / total
        elif len(untested) < len(trained):
            named = some_of([f"{label}, {name} {value}" for value, label in untested])
            reasons.append(f"adjusted average ({name}): trained on, but not tested: {named}")
    return averages, reasons


def _accuracies(
    images: pd.DataFrame, column: str, classes: Sequence[str]
) -> Mapping[tuple[str, str], float]:
    """Compute the accuracy of each group that has tested images, by value and class."""
    value = images[column].astype(object).where(images[column].notna(), None).map(str)
    counted = pd.DataFrame({
        "value": value,
        "label": images["label"],
        "n": images["weight"],
        "right": images["weight"] * images["right"],
    })  # fmt: skip
    sums = counted.groupby(["value", "label"])[["n", "right"]].sum().query("n > 0")
    groups = [(str(value), classes[label]) for value, label in sums.index.tolist()]
    return dict(zip(groups, (sums["right"] / sums["n"]).tolist(), strict=True))

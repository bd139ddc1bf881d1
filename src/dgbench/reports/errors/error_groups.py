"""Where errors gather: groups of images with low accuracy, and classes that are taken for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dgbench.reports.errors.error_counts import Counts, Group, mean_confusion

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEW = 10  # images of a group below which it is not called the worst


@dataclass(frozen=True)
class GroupAccuracy:
    """Accuracy in one group, mean over seeds."""

    group: Group
    accuracy: float
    n: float  #: images of one seed

    def named(self, classes: Sequence[str]) -> str:
        """``dog in sketch``, with the value of the attribute."""
        name, value, label, env = self.group
        return f"{classes[label]} in {env}" + (f", {name} {value or '(empty)'}" if name else "")


def group_accuracies(seeds: Sequence[Counts], attributes: bool = True) -> list[GroupAccuracy]:
    """Accuracy of each class in each environment, and in each value of the attributes; lowest first.

    Args:
        seeds: counts of one algorithm.
        attributes: those of attributes, too.
    """
    found: dict[Group, list[NDArray[np.float64]]] = {}
    for seed in seeds:
        for group, counted in {**seed.class_groups(), **(seed.groups if attributes else {})}.items():
            found.setdefault(group, []).append(counted)
    means = [
        GroupAccuracy(group, float(np.mean([c[1] / c[0] for c in own])), float(np.mean([c[0] for c in own])))
        for group, own in found.items()
    ]
    return sorted(means, key=lambda each: (each.accuracy, -each.n, each.group))


def worst_group(seeds: Sequence[Counts], attributes: bool = False) -> GroupAccuracy | None:
    """The group of :data:`FEW` images or more with the lowest accuracy."""
    return next((each for each in group_accuracies(seeds, attributes) if each.n >= FEW), None)


def confusions(seeds: Sequence[Counts]) -> Iterator[tuple[int, int, float, float]]:
    """(class, class that it is taken for, images, share of the class), most images first."""
    counted = mean_confusion(seeds)
    wrong = counted - np.diag(np.diag(counted))
    for at in np.argsort(-wrong, axis=None, kind="stable").tolist():
        label, taken = divmod(at, len(counted))
        if wrong[label, taken] > 0:
            yield label, taken, float(wrong[label, taken]), float(wrong[label, taken] / counted[label].sum())

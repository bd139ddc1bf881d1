"""Counts of one seed's runs, summed over images as they are read, and the measures of them.

Where errors gather: groups of images with low accuracy, and classes that are taken for others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import confusion_matrix, f1_score, roc_auc_score

from dgbench.reports.errors.images import EnvImages

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 15  # of confidence, as in Guo et al. (2017)
MOST_VALUES = 50  # of an attribute; one with more, as a file's number, makes no groups

Group = tuple[str, str, int, str]  # attribute or nothing, its value, class, environment


@dataclass
class Counts:
    """What the runs of one algorithm and seed do in the environments that they are tested in.

    Args:
        n_classes: K.

    Attributes:
        confusion: environment -> (K, K) images by true and predicted class.
        bins: environment -> (3, BINS) images, images that are right and summed confidence, by confidence.
        auroc: environment -> of each run that is tested there; NaN where it is not defined.
        groups: images, and images that are right, of each class, environment and value of an attribute.
        many: attributes with more values than make groups.
    """

    n_classes: int
    confusion: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    bins: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    auroc: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[Group, NDArray[np.float64]] = field(default_factory=lambda: defaultdict(lambda: np.zeros(2)))
    many: set[str] = field(default_factory=set)

    def add(self, images: EnvImages) -> None:
        """Count the images of one run in one environment."""
        env, k = images.env, self.n_classes
        counted = confusion_matrix(images.label, images.predicted, labels=range(k), sample_weight=images.weight)
        self.confusion[env] = self.confusion.get(env, np.zeros((k, k))) + counted
        self.bins[env] = self.bins.get(env, np.zeros((3, BINS))) + confidence_bins(images)
        self.auroc[env].append(auroc(images))
        for name, values in images.attributes.items():
            self._add_groups(images, name, values)

    def _add_groups(self, images: EnvImages, name: str, values: NDArray[Any]) -> None:
        found, number = np.unique(values.astype(str), return_inverse=True)
        if len(found) > MOST_VALUES or name in self.many:
            self.many.add(name)
            for group in [group for group in self.groups if group[0] == name]:
                del self.groups[group]
            return
        place = number * self.n_classes + images.label
        size = len(found) * self.n_classes
        n = np.bincount(place, images.weight, size)
        right = np.bincount(place, images.weight * images.right, size)
        for at in np.flatnonzero(n).tolist():
            value, label = divmod(at, self.n_classes)
            self.groups[name, str(found[value]), label, images.env] += (n[at], right[at])

    def class_groups(self) -> dict[Group, NDArray[np.float64]]:
        """Images, and images that are right, of each class in each environment."""
        found = {}
        for env, counted in self.confusion.items():
            for label, n in enumerate(counted.sum(1).tolist()):
                if n:
                    found["", "", label, env] = np.array([n, counted[label, label]])
        return found

    def of(self, envs: Iterable[str] | None = None) -> Measured:
        """The measures over all images of some environments; by default of all."""
        names = list(self.confusion if envs is None else envs)
        counted = sum((self.confusion[env] for env in names), np.zeros((self.n_classes, self.n_classes)))
        bins = sum((self.bins[env] for env in names), np.zeros((3, BINS)))
        areas = [np.mean(self.auroc[env]) for env in names]
        return Measured(
            images=float(counted.sum()),
            accuracy=float(np.trace(counted) / counted.sum()),
            macro_f1=macro_f1(counted),
            auroc=float(np.mean(areas)),
            ece=calibration_error(bins),
            excess=float((bins[2].sum() - bins[1].sum()) / bins[0].sum()),
        )


@dataclass(frozen=True)
class Measured:
    """Measures of one seed; fractions.

    Args:
        images: how many.
        accuracy: share that is right, all images alike.
        macro_f1: mean F1 over classes that occur among labels or predictions.
        auroc: one class against the rest, mean over the classes, then over the models and environments: scores of two
            models are not on one scale.
        ece: expected calibration error.
        excess: mean confidence less accuracy; above 0 is overconfident.
    """

    images: float
    accuracy: float
    macro_f1: float
    auroc: float
    ece: float
    excess: float


def macro_f1(confusion: NDArray[np.float64]) -> float:
    """(K, K) images by true and predicted class -> mean F1 over classes that occur in either."""
    label, predicted = np.nonzero(confusion)
    weight = confusion[label, predicted]
    return float(f1_score(label, predicted, average="macro", sample_weight=weight, zero_division=0))


def auroc(images: EnvImages) -> float:
    """Area under the ROC curve of each class against the rest, mean over the classes that occur; NaN without any.

    NaN, too, where not all probabilities are known.
    """
    if images.scores is None:
        return float("nan")
    areas = []
    for label in np.unique(images.label).tolist():
        own = images.label == label
        if not own.all():
            areas.append(roc_auc_score(own, images.scores[:, label], sample_weight=images.weight))
    return float(np.mean(areas)) if areas else float("nan")


def confidence_bins(images: EnvImages) -> NDArray[np.float64]:
    """(3, BINS): images, images that are right, and summed confidence in bins ((m - 1) / BINS, m / BINS]."""
    place = np.clip(np.ceil(images.confidence * BINS).astype(int) - 1, 0, BINS - 1)
    columns = (images.weight, images.weight * images.right, images.weight * images.confidence)
    return np.stack([np.bincount(place, column, BINS) for column in columns])


def calibration_error(bins: NDArray[np.float64]) -> float:
    """Expected calibration error: mean over images of |accuracy - confidence| of their bin.

    Source: Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", with the 15 equal
    bins of Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 5.

    Args:
        bins: of :func:`confidence_bins`.
    """
    n, right, confidence = bins
    return float(np.abs(right - confidence).sum() / n.sum())


def mean_confusion(seeds: Sequence[Counts]) -> NDArray[np.float64]:
    """(K, K) images by true and predicted class over all environments, mean over seeds."""
    counted: NDArray[np.float64] = np.mean([np.sum(list(seed.confusion.values()), axis=0) for seed in seeds], axis=0)
    return counted


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

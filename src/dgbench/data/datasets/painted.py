"""Environments that differ in how often a painted feature disagrees with the label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from dgbench.data.datasets.base_images import BaseImages
from dgbench.data.datasets.splits import Subsets
from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.environments import Catalog, Environments, EvalSet, Table, TensorStore
from dgbench.seeding import derive

#: (n, C, H, W) images in [0, 1] and (n,) feature values in 0..K-1 -> (n, C', H, W)
Painter = Callable[[Tensor, Tensor], Tensor]


class PaintedTable(Table):
    """Environments e in [0, 1]: the feature differs from the label with probability e.

    It is then any other value.

    A pool of images that no training environment uses judges every environment: it is the ``test``
    subset of all. With ``evaluation="exact"`` the test error in environment e is computed, not
    sampled: it is (1 - e) * error(feature = label) + e * mean error(feature = another value), which
    costs K evaluations of the pool for all environments together. With ``"sampled"`` the pool is
    painted once per environment.

    Args:
        info, subsets: as of :class:`~dgbench.data.environments.Table`.
        labels: (n,) int64, by position.
        disagreement: environment -> probability that feature and label differ.
    """

    def __init__(
        self, info: DatasetInfo, subsets: Subsets, labels: Tensor, disagreement: Mapping[str, float]
    ) -> None:
        super().__init__(info, subsets)
        self.labels = labels
        self.disagreement = disagreement

    @property
    def pool(self) -> np.ndarray:
        """Positions of the images that judge every environment."""
        return self.subset(self.info.given[0], "test")

    def _mixture(self, env: str, subset: str, grouped: bool) -> Mapping[str, float]:
        if subset != "test" or grouped or self.info.evaluation == "sampled":
            return super()._mixture(env, subset, grouped)
        probability = self.disagreement[env]
        n_classes = self.info.n_classes
        mixture = {"test+0": 1.0 - probability}
        for k in range(1, n_classes):
            mixture[f"test+{k}"] = probability / (n_classes - 1)
        return mixture

    def eval_set(self, name: str) -> EvalSet:
        """Choose what to paint into the pool.

        ``test/ENVIRONMENT`` paints as that environment would, ``test+k`` paints label + k.
        """
        subset, _, env = name.partition("/")
        if not subset.startswith("test"):
            return super().eval_set(name)
        pool = torch.from_numpy(self.pool)
        labels = self.labels[pool]
        n_classes = self.info.n_classes
        if env:
            rng = np.random.default_rng(derive(self.info.data_seed, "pool feature", env))
            feature = replaced(labels, self.disagreement[env], n_classes, rng)
            return EvalSet(pool, feature, pictures=torch.arange(len(pool)) * n_classes + feature)
        return EvalSet(pool, (labels + int(subset.removeprefix("test+"))) % n_classes)


class PaintedStore(TensorStore):
    """Images into which a spurious feature is painted when they are gathered.

    Args:
        images: (n, C, H, W).
        labels: (n,) int64.
        peak: value that becomes 1.0.
        feature: (n,) each image's own, one of K values.
        paint: draws a feature.
    """

    def __init__(
        self, images: Tensor, labels: Tensor, peak: int, feature: Tensor, paint: Painter
    ) -> None:
        super().__init__(images, labels, peak)
        self.feature = feature
        self.paint = paint
        probe = paint(images[:1] / peak, feature[:1])
        self.image = tuple(probe.shape[1:])

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.feature = self.feature.to(device)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        images, labels = super().gather(indices)
        if feature is None:
            feature = self.feature[indices.to(self.feature.device)]
        return self.paint(images, feature.to(images.device)), labels


def painted(
    info: DatasetInfo,
    subsets: Subsets,
    disagreement: Mapping[str, float],
    base: BaseImages,
    labels: Tensor,
    label_noise: float,
    paint: Painter,
) -> Environments:
    """Build environments over images in which a feature is painted.

    All random numbers come from ``data_seed``, each use with its own generator, so data depend on
    nothing else.

    Args:
        info, subsets, disagreement: see :class:`PaintedTable`.
        base: the images.
        labels: (n,) preliminary labels in 0..K-1, by position.
        label_noise: probability that a label is replaced by another one.
        paint: draws the feature, one of K values, into images.
    """

    def rng(purpose: str) -> np.random.Generator:
        return np.random.default_rng(derive(info.data_seed, purpose))

    labels = replaced(labels, label_noise, info.n_classes, rng("label noise"))
    feature = labels.clone()
    for env in info.given:
        positions = np.concatenate([subsets[env, "val"], subsets[env, "train"]])
        changed = replaced(labels, disagreement[env], info.n_classes, rng("feature"))
        feature[positions] = changed[positions]
    store = PaintedStore(base.images, labels, base.peak, feature, paint)
    table = PaintedTable(replace(info, image=store.image), subsets, labels, disagreement)
    classes = tuple(map(str, range(info.n_classes)))
    catalog = Catalog(labels.numpy(), classes, Preprocessing.unchanged(store.image))
    return Environments(table, catalog, store)


def replaced(
    labels: Tensor, probability: float, n_classes: int, rng: np.random.Generator
) -> Tensor:
    """Replace each of (n,) labels with ``probability`` by another class, all equally likely."""
    chosen = torch.from_numpy(rng.random(len(labels)) < probability)
    shift = torch.from_numpy(rng.integers(1, n_classes, len(labels)))
    return torch.where(chosen, (labels + shift) % n_classes, labels)

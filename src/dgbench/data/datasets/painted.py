"""Environments that differ in how often a spurious feature disagrees with the label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from dgbench.data.datasets.base_images import BaseImages
from dgbench.data.datasets.spurious import SpuriousOptions, SpuriousPlan
from dgbench.data.environments import Environments, EvalSet
from dgbench.seeding import derive
from dgbench.tensors import ErrorRecipe

Painter = Callable[[Tensor, Tensor], Tensor]


class SpuriousEnvironments(Environments):
    """Environments e in [0, 1]: the feature differs from the label with probability e, and is then any other value.

    A pool of images that no training environment uses judges every environment; the rest is dealt to the given
    environments, each split into train and val. All chance comes from ``data_seed`` and ``split_seed``, each use
    with its own generator, so data depend on nothing else.

    With ``evaluation="exact"`` the test error in environment e is computed, not sampled: it is
    (1 - e) * error(feature = label) + e * mean error(feature = another value), which costs K evaluations of the pool
    for all environments together. With ``"sampled"`` the pool is painted once per environment.

    Args:
        options: label noise; what they mean is said there.
        plan: environments, and which images go where.
        base: images; their classes are mapped to labels by ``label_of``.
        label_of: (M,) classes -> (M,) preliminary labels in 0..K-1.
        paint: draws the feature, one of K values, into images.
    """

    def __init__(
        self,
        options: SpuriousOptions,
        plan: SpuriousPlan,
        base: BaseImages,
        label_of: Callable[[Tensor], Tensor],
        paint: Painter,
    ) -> None:
        info = plan.info
        self.given, self.everywhere, self.n_classes = list(info.given), list(info.everywhere), info.n_classes
        self.evaluation, self.data_seed = info.evaluation, info.data_seed
        self.strength, self.disagreement = dict(plan.strength), plan.disagreement
        self.pool, self._subsets = plan.pool, plan.subsets
        self.paint, self.peak, self.images = paint, base.peak, base.images
        self.labels = _replaced(label_of(base.classes), options.label_noise, self.n_classes, self._rng("label noise"))
        self.feature = self.labels.clone()
        for name in self.given:
            own = np.concatenate([self._subsets[name, "val"], self._subsets[name, "train"]])
            own_feature = _replaced(self.labels, self.disagreement[name], self.n_classes, self._rng("feature"))
            self.feature[own] = own_feature[own]
        probe = self.paint(self.images[:1] / self.peak, self.feature[:1])
        self.image = (probe.shape[1], probe.shape[2], probe.shape[3])
        self.info = replace(info, image=self.image)

    def _rng(self, *purpose: str | int) -> np.random.Generator:
        return np.random.default_rng(derive(self.data_seed, *purpose))

    def to(self, device: torch.device) -> None:
        self.images, self.labels, self.feature = (t.to(device) for t in (self.images, self.labels, self.feature))

    def subset(self, env: str, name: str) -> np.ndarray:
        return self._subsets[env, name]

    def labels_at(self, indices: np.ndarray) -> np.ndarray:
        labels: np.ndarray = self.labels[torch.from_numpy(indices).to(self.labels.device)].cpu().numpy()
        return labels

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        indices = indices.to(self.images.device)
        images = self.images[indices].to(torch.get_default_dtype()) / self.peak
        return self.paint(images, self.feature[indices] if feature is None else feature), self.labels[indices]

    def error_recipes(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[ErrorRecipe]:
        own = [
            ErrorRecipe(env, name, {f"{name}/{env}": 1.0})
            for name in subsets
            if name != "test"
            for env in self.given
            if len(self._subsets[env, name])
        ]
        tested = self.everywhere if everywhere else self.given
        return own + [ErrorRecipe(env, "test", self._mixture(env, grouped)) for env in tested if "test" in subsets]

    def _mixture(self, env: str, grouped: bool) -> dict[str, float]:
        if grouped or self.evaluation == "sampled":
            return {f"test/{env}": 1.0}
        differs = self.disagreement[env]
        others = {f"test+{k}": differs / (self.n_classes - 1) for k in range(1, self.n_classes)}
        return {"test+0": 1.0 - differs, **others}

    def eval_sets(self, names: Sequence[str]) -> dict[str, EvalSet]:
        return {name: self._eval_set(name) for name in names}

    def _eval_set(self, name: str) -> EvalSet:
        subset, _, env = name.partition("/")
        if env and subset != "test":
            return EvalSet(self._positions(self._subsets[env, subset]))
        pool = self._positions(self.pool)
        labels = self.labels[pool]
        if env:
            feature = _replaced(labels.cpu(), self.disagreement[env], self.n_classes, self._rng("pool feature", env))
            return EvalSet(pool, feature.to(labels.device))
        shift = int(subset.removeprefix("test+"))
        return EvalSet(pool, (labels + shift) % self.n_classes)

    def _positions(self, indices: np.ndarray) -> Tensor:
        return torch.from_numpy(indices).to(self.images.device)


def _replaced(labels: Tensor, probability: float, n_classes: int, rng: np.random.Generator) -> Tensor:
    """(n,) labels, each replaced with ``probability`` by one of the other classes, all equally likely."""
    replace = torch.from_numpy(rng.random(len(labels)) < probability)
    shift = torch.from_numpy(rng.integers(1, n_classes, len(labels)))
    return torch.where(replace, (labels + shift) % n_classes, labels)

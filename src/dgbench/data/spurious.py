"""Environments that differ in how often a spurious feature disagrees with the label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.data.base_images import BaseImages
from dgbench.data.environments import Environments, Pass
from dgbench.errors import ConfigError
from dgbench.seeding import derive
from dgbench.types import Score

Painter = Callable[[Tensor, Tensor], Tensor]


def environment_name(e: float) -> str:
    """``0.8`` -> ``0.80``; up to four decimals where two do not tell environments apart."""
    short = f"{e:.2f}"
    return short if abs(float(short) - e) < 5e-5 else f"{e:.4f}"


class SpuriousEnvironments(Environments):
    """Environments e in [0, 1]: the feature differs from the label with probability e, and is then any other value.

    A pool of images that no training environment uses judges every environment; the rest is dealt to the given
    environments, each split into train and val. All chance comes from ``data_seed`` and ``split_seed``, each use
    with its own generator, so data depend on nothing else.

    With ``evaluation="exact"`` the test error in environment e is computed, not sampled: it is
    (1 - e) * error(feature = label) + e * mean error(feature = another value), which costs K passes over the pool
    for all environments together. With ``"sampled"`` the pool is painted once per environment.

    Args:
        dataset: name for the rows.
        base: images; their classes are mapped to labels by ``label_of``.
        label_of: (M,) classes -> (M,) preliminary labels in 0..K-1.
        paint: draws the feature into images.
        n_classes: K, also the number of feature values.
        label_noise: probability that a label is replaced by another one.
        given, grid: e of the given environments and of all environments.
        pool_fraction: share of the images in the evaluation pool.
        val_fraction: share of a given environment's images in its val subset.
        evaluation: ``exact`` or ``sampled``.
        e_means: ``disagree``, or ``agree`` where e is the probability that the feature equals the label.
        data_seed, split_seed: see above.
        shares: how the images outside the pool are dealt to the given environments, in proportion; None is evenly.
        val_only: e of given environments whose own images are all ``val``: those that are never trained on.
        variant: what else tells this form of the dataset from others, for the rows.

    Raises:
        ConfigError: e outside [0, 1] or repeated, or a fraction that leaves a subset empty.
    """

    def __init__(
        self,
        *,
        dataset: str,
        base: BaseImages,
        label_of: Callable[[Tensor], Tensor],
        paint: Painter,
        n_classes: int,
        label_noise: float,
        given: Sequence[float],
        grid: Sequence[float],
        pool_fraction: float,
        val_fraction: float,
        evaluation: str,
        data_seed: int,
        split_seed: int,
        variant: Mapping[str, Any],
        e_means: str = "disagree",
        shares: Sequence[float] | None = None,
        val_only: Sequence[float] = (),
    ) -> None:
        if evaluation not in ("exact", "sampled"):
            raise ConfigError(f"dataset.evaluation={evaluation} is unknown; choose exact or sampled")
        if e_means not in ("agree", "disagree"):
            raise ConfigError(f"dataset.e_means={e_means} is unknown; choose agree or disagree")
        for key, share in (("label_noise", label_noise), ("pool_fraction", pool_fraction)):
            if not 0 <= share < 1:
                raise ConfigError(f"dataset.{key}={share} is not in [0, 1); choose a value inside")
        _check(given)
        self.strength = {environment_name(e): float(e) for e in [*given, *grid]}
        self.disagreement = {name: e if e_means == "disagree" else 1 - e for name, e in self.strength.items()}
        self.given = [environment_name(e) for e in given]
        self.everywhere = list(dict.fromkeys([*(environment_name(e) for e in grid), *self.given]))
        repeated = [name for name in self.given if self.given.count(name) > 1]
        if repeated:
            raise ConfigError(f"dataset.given holds {repeated[0]} more than once; give each environment once")
        self.n_classes, self.paint, self.peak, self.evaluation, self.data_seed = (
            n_classes,
            paint,
            base.peak,
            evaluation,
            data_seed,
        )
        self._identity = {
            "dataset": dataset,
            "variant": {
                **variant,
                "label_noise": label_noise,
                "pool_fraction": pool_fraction,
                "val_fraction": val_fraction,
                **({} if shares is None else {"shares": list(shares)}),
                **({} if not val_only else {"val_only": list(val_only)}),
            },
            "base": base.name,
            "evaluation": evaluation,
            "data_seed": data_seed,
            "split_seed": split_seed,
            "given": self.given,
        }
        self.images = base.images
        self.labels = _replaced(label_of(base.classes), label_noise, n_classes, self._rng("label noise"))
        order = self._rng("deal").permutation(len(self.labels))
        cut = round(pool_fraction * len(order))
        self.pool, dealt = order[:cut], order[cut:]
        self.feature = self.labels.clone()
        self._subsets: dict[tuple[str, str], np.ndarray] = {}
        hands = _hands(dealt, len(self.given), shares)
        spared = {environment_name(e) for e in val_only}
        if not spared <= set(self.given):
            raise ConfigError(
                f"dataset.val_only={list(val_only)} names others than dataset.given={list(given)}; mend it"
            )
        for name, own in zip(self.given, hands, strict=True):
            shuffled = own[np.random.default_rng(derive(split_seed, "split", name)).permutation(len(own))]
            n_val = len(own) if name in spared else int(len(own) * val_fraction)
            if not 0 < n_val < len(own) + (name in spared) or cut == 0:
                raise ConfigError(
                    f"environment {name} has {len(own)} images, {n_val} of them for val, and the pool {cut}: one "
                    "subset is empty; use fewer environments, more images (dataset.base=mnist) or other fractions"
                )
            self._subsets[name, "val"], self._subsets[name, "train"] = shuffled[:n_val], shuffled[n_val:]
            own_feature = _replaced(self.labels, self.disagreement[name], n_classes, self._rng("feature"))
            self.feature[own] = own_feature[own]
        probe = self.paint(self.images[:1] / self.peak, self.feature[:1])
        self.image = (probe.shape[1], probe.shape[2], probe.shape[3])

    def _rng(self, *purpose: str | int) -> np.random.Generator:
        return np.random.default_rng(derive(self.data_seed, *purpose))

    def identity(self) -> dict[str, Any]:
        return dict(self._identity)

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

    def scores(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[Score]:
        own = [
            Score(env, name, {f"{name}/{env}": 1.0})
            for name in subsets
            if name != "test"
            for env in self.given
            if len(self._subsets[env, name])
        ]
        tested = self.everywhere if everywhere else self.given
        return own + [Score(env, "test", self._mixture(env, grouped)) for env in tested if "test" in subsets]

    def _mixture(self, env: str, grouped: bool) -> dict[str, float]:
        if grouped or self.evaluation == "sampled":
            return {f"test/{env}": 1.0}
        differs = self.disagreement[env]
        others = {f"test+{k}": differs / (self.n_classes - 1) for k in range(1, self.n_classes)}
        return {"test+0": 1.0 - differs, **others}

    def passes(self, names: Sequence[str]) -> dict[str, Pass]:
        return {name: self._pass(name) for name in names}

    def _pass(self, name: str) -> Pass:
        subset, _, env = name.partition("/")
        if env and subset != "test":
            return Pass(self._positions(self._subsets[env, subset]))
        pool = self._positions(self.pool)
        labels = self.labels[pool]
        if env:
            feature = _replaced(labels.cpu(), self.disagreement[env], self.n_classes, self._rng("pool feature", env))
            return Pass(pool, feature.to(labels.device))
        shift = int(subset.removeprefix("test+"))
        return Pass(pool, (labels + shift) % self.n_classes)

    def _positions(self, indices: np.ndarray) -> Tensor:
        return torch.from_numpy(indices).to(self.images.device)


def _hands(dealt: np.ndarray, n: int, shares: Sequence[float] | None) -> list[np.ndarray]:
    """The images of each of n environments."""
    if shares is None:
        return [dealt[i::n] for i in range(n)]
    if len(shares) != n or not all(isinstance(share, (int, float)) and share > 0 for share in shares):
        raise ConfigError(f"dataset.shares={list(shares)} is not {n} positive numbers, one per given environment")
    ends = np.rint(np.cumsum(shares) / sum(shares) * len(dealt)).astype(int)
    return np.split(dealt, ends[:-1])


def _replaced(labels: Tensor, probability: float, n_classes: int, rng: np.random.Generator) -> Tensor:
    """(n,) labels, each replaced with ``probability`` by one of the other classes, all equally likely."""
    replace = torch.from_numpy(rng.random(len(labels)) < probability)
    shift = torch.from_numpy(rng.integers(1, n_classes, len(labels)))
    return torch.where(replace, (labels + shift) % n_classes, labels)


def _check(given: Sequence[float]) -> None:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(
            f"dataset.given={given} is no list; give at least two environments, e.g. dataset.given=[0.9,0.1]"
        )
    if not given:
        raise ConfigError("dataset.given is empty; give at least two environments, e.g. dataset.given=[0.9,0.8,0.1]")
    for e in given:
        if not isinstance(e, (int, float)) or isinstance(e, bool) or not 0 <= e <= 1:
            raise ConfigError(f"dataset.given holds {e}, which is not a number in [0, 1]; e is a probability")

"""Options and plan of environments with a spurious feature: names, seeds, and which images go where; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dgbench.data.description import DatasetInfo
from dgbench.data.option_checks import (
    check_choice,
    check_name,
    check_numbers,
    check_seeds,
    check_share,
    is_number,
    shown,
)
from dgbench.errors import ConfigError
from dgbench.seeding import derive

GRID = [round(0.01 * i, 2) for i in range(101)]  # e of all environments


def environment_name(e: float) -> str:
    """``0.8`` -> ``0.80``; up to four decimals where two do not tell environments apart."""
    short = f"{e:.2f}"
    return short if abs(float(short) - e) < 5e-5 else f"{e:.4f}"


@dataclass(frozen=True)
class SpuriousPlan:
    """Environments and the images of each.

    Args:
        info: the dataset.
        strength: environment -> e.
        e_means: ``disagree`` or ``agree``.
        pool: positions of the images that judge every environment.
        subsets: (given environment, ``train`` or ``val``) -> positions; empty where the files are absent, as the pool.
    """

    info: DatasetInfo
    strength: Mapping[str, float]
    e_means: str
    pool: np.ndarray
    subsets: Mapping[tuple[str, str], np.ndarray]

    @cached_property
    def disagreement(self) -> dict[str, float]:
        """Environment -> probability that feature and label differ."""
        return {name: e if self.e_means == "disagree" else 1 - e for name, e in self.strength.items()}


@dataclass(frozen=True, kw_only=True)
class SpuriousOptions:
    """What every dataset with a spurious feature takes.

    Args:
        name: of the dataset, in the rows.
        label_noise: probability that a label is replaced by another one.
        given: e of the given environments; None leaves them to the dataset.
        pool_fraction: share of the images in the evaluation pool.
        val_fraction: share of a given environment's images in its val subset.
        evaluation: ``exact`` or ``sampled``.
        data_seed: decides which images go where, label noise and features.
        split_seed: decides the split into train and val.
        e_means: ``disagree``, or ``agree`` where e is the probability that the feature equals the label.
        shares: how the images outside the pool are dealt to the given environments, in proportion; None is evenly.
        val_only: e of given environments whose own images are all ``val``: those that are never trained on.
    """

    name: str
    label_noise: float
    given: Sequence[float] | None
    pool_fraction: float
    val_fraction: float
    evaluation: str
    data_seed: int
    split_seed: int
    e_means: str = "disagree"
    shares: Sequence[float] | None = None
    val_only: Sequence[float] = ()

    def plan(
        self,
        given: Sequence[float],
        variant: Mapping[str, Any],
        *,
        base: str,
        n_images: int,
        n_classes: int,
        image: tuple[int, int, int],
        content: str,
    ) -> SpuriousPlan:
        """Check the values and deal the images.

        Args:
            given: e of the given environments.
            variant: what tells this form of the dataset from others, besides the keys of this class.
            base: name of the base images.
            n_images: how many there are; 0 where the files are absent, and nothing is dealt.
            n_classes: K.
            image: C, H, W after painting.
            content: of the files.

        Raises:
            ConfigError: a value that cannot work, e outside [0, 1] or repeated, a fraction that leaves a subset empty.
        """
        self._check_values()
        check_given(given)
        names = [environment_name(e) for e in given]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise ConfigError(f"dataset.given holds {repeated[0]} more than once; give each environment once")
        if not {environment_name(e) for e in self.val_only} <= set(names):
            raise ConfigError(
                f"dataset.val_only={shown(self.val_only)} names others than dataset.given={shown(given)}; correct it"
            )
        pool, subsets = self._dealt(n_images, names)
        info = DatasetInfo(
            name=self.name,
            variant={
                **variant,
                "label_noise": self.label_noise,
                "pool_fraction": self.pool_fraction,
                "val_fraction": self.val_fraction,
                **({} if self.shares is None else {"shares": list(self.shares)}),
                **({} if not self.val_only else {"val_only": list(self.val_only)}),
            },
            base=base,
            evaluation=self.evaluation,
            data_seed=self.data_seed,
            split_seed=self.split_seed,
            given=tuple(names),
            everywhere=tuple(dict.fromkeys([*(environment_name(e) for e in GRID), *names])),
            n_classes=n_classes,
            image=image,
            beyond=True,
            counts={
                env: {"train": len(subsets[env, "train"]), "val": len(subsets[env, "val"]), "test": len(pool)}
                for env in names
            }
            if n_images
            else {},
            content=content,
        )
        strength = {environment_name(e): float(e) for e in [*given, *GRID]}
        return SpuriousPlan(info, strength, self.e_means, pool, subsets)

    def _check_values(self) -> None:
        check_name(self.name)
        check_seeds(data_seed=self.data_seed, split_seed=self.split_seed)
        check_choice("evaluation", self.evaluation, ("exact", "sampled"))
        check_choice("e_means", self.e_means, ("agree", "disagree"))
        check_share("pool_fraction", self.pool_fraction, "0.2 is usual")
        if not is_number(self.label_noise) or not 0 <= self.label_noise < 1:
            raise ConfigError(f"dataset.label_noise={shown(self.label_noise)} is not in [0, 1); 0.25 is the papers'")
        check_numbers("val_only", self.val_only)
        if self.shares is not None:
            check_numbers("shares", self.shares)
        check_share("val_fraction", self.val_fraction, "DomainBed uses 0.2")

    def _dealt(self, n: int, names: Sequence[str]) -> tuple[np.ndarray, dict[tuple[str, str], np.ndarray]]:
        """The pool, and train and val of each given environment."""
        order = np.random.default_rng(derive(self.data_seed, "deal")).permutation(n)
        cut = round(self.pool_fraction * n)
        pool, dealt = order[:cut], order[cut:]
        spared = {environment_name(e) for e in self.val_only}
        subsets: dict[tuple[str, str], np.ndarray] = {}
        for name, own in zip(names, _hands(dealt, len(names), self.shares), strict=True):
            shuffled = own[np.random.default_rng(derive(self.split_seed, "split", name)).permutation(len(own))]
            n_val = len(own) if name in spared else int(len(own) * self.val_fraction)
            if n and (not 0 < n_val < len(own) + (name in spared) or cut == 0):
                raise ConfigError(
                    f"environment {name} has {len(own)} images, {n_val} of them for val, and the pool {cut}: one "
                    "subset is empty; use fewer environments, more images (dataset.base=mnist) or other fractions"
                )
            subsets[name, "val"], subsets[name, "train"] = shuffled[:n_val], shuffled[n_val:]
        return pool, subsets


def _hands(dealt: np.ndarray, n: int, shares: Sequence[float] | None) -> list[np.ndarray]:
    """The images of each of n environments."""
    if shares is None:
        return [dealt[i::n] for i in range(n)]
    if len(shares) != n or not all(share > 0 for share in shares):
        raise ConfigError(f"dataset.shares={shown(shares)} is not {n} positive numbers, one per given environment")
    ends = np.rint(np.cumsum(shares) / sum(shares) * len(dealt)).astype(int)
    return np.split(dealt, ends[:-1])


def check_given(given: Sequence[float]) -> None:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(
            f"dataset.given={shown(given)} is no list; give at least two environments, e.g. dataset.given=[0.9,0.1]"
        )
    if not given:
        raise ConfigError("dataset.given is empty; give at least two environments, e.g. dataset.given=[0.9,0.8,0.1]")
    for e in given:
        if not isinstance(e, (int, float)) or isinstance(e, bool) or not 0 <= e <= 1:
            raise ConfigError(f"dataset.given holds {shown(e)}, which is not a number in [0, 1]; e is a probability")

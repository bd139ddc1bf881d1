"""Which corrupted environments there are and which images each holds; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dgbench.errors import ConfigError
from dgbench.seeding import derive


@dataclass(frozen=True)
class Section:
    """Images that are corrupted alike.

    Args:
        name: unique; part of the seed and of the file's name.
        corruption: what is done to them; None leaves them clean.
        positions: (m,) of the clean images in their store.
    """

    name: str
    corruption: str | None
    positions: np.ndarray


@dataclass(frozen=True)
class CorruptedPlan:
    """The images of every environment.

    Args:
        parts: environment -> its domain and corruption (None is clean), of all environments.
        given: names of the given environments.
        sections: the images, as they lie in the store: of each domain first its pool under every corruption, named
            ``ENVIRONMENT-pool``, then the images dealt to its given environments, ``ENVIRONMENT-dealt``.
        n_train: given environment -> how many of its dealt images train; they come first.
    """

    parts: Mapping[str, tuple[str, str | None]]
    given: Sequence[str]
    sections: Sequence[Section]
    n_train: Mapping[str, int]

    def counts(self) -> dict[str, dict[str, int]]:
        """Given environment -> ``train``, ``val``, ``test`` -> images."""
        size = {section.name: len(section.positions) for section in self.sections}
        return {
            env: {"train": n, "val": size[f"{env}-dealt"] - n, "test": size[f"{env}-pool"]}
            for env, n in self.n_train.items()
        }


def environments_of(domains: Sequence[str], corruptions: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """``photo``, ``photo+gaussian_noise``, ...: every environment with its domain and corruption."""
    return {name if c is None else f"{name}+{c}": (name, c) for name in domains for c in (None, *corruptions)}


def plan_corrupted(
    images: Mapping[str, np.ndarray],
    corruptions: Sequence[str],
    given: Sequence[str],
    *,
    pool_fraction: float,
    val_fraction: float,
    data_seed: int,
    split_seed: int,
) -> CorruptedPlan:
    """Deal the images of every domain to its environments.

    Args:
        images: domain -> positions of its clean images, sorted.
        corruptions: names of those that exist.
        given: names of the given environments.
        pool_fraction: share of a domain's images in its evaluation pool.
        val_fraction: share of a given environment's images in its val subset.
        data_seed: decides which images are dealt to which environment.
        split_seed: decides pools and splits.

    Raises:
        ConfigError: a fraction that leaves a subset empty.
    """
    parts = environments_of(list(images), corruptions)
    sections, n_train = [], {}
    for domain, positions in images.items():
        pool, rest = _cut(positions, pool_fraction, split_seed, "pool", domain)
        sections += [Section(f"{env}-pool", c, pool) for env, (d, c) in parts.items() if d == domain]
        own = [env for env in given if parts[env][0] == domain]
        dealt = rest[np.random.default_rng(derive(data_seed, "deal", domain)).permutation(len(rest))]
        for i, env in enumerate(own):
            val, train = _cut(dealt[i :: len(own)], val_fraction, split_seed, "split", env)
            if not len(pool) or not len(val) or not len(train):
                raise ConfigError(
                    f"environment {env} has {len(train)} train and {len(val)} val images and the pool of {domain} "
                    f"{len(pool)}: one is empty; use more images, fewer given environments or other fractions"
                )
            sections.append(Section(f"{env}-dealt", parts[env][1], np.concatenate([train, val])))
            n_train[env] = len(train)
    return CorruptedPlan(parts, given, sections, {env: n_train[env] for env in given})


def _cut(images: np.ndarray, share: float, seed: int, *purpose: str) -> tuple[np.ndarray, np.ndarray]:
    """A share of the images, drawn, and the others."""
    shuffled = images[np.random.default_rng(derive(seed, *purpose)).permutation(len(images))]
    n = int(len(images) * share)
    return shuffled[:n], shuffled[n:]

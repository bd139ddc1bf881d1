"""Rows of images or features: their environments and classes, and how each environment's are split; no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dgbench.data.description import SUBSETS, Counts, check_names
from dgbench.data.options import list_of_names
from dgbench.errors import ConfigError, DataError
from dgbench.seeding import derive
from dgbench.validation import some_of

Subsets = Mapping[tuple[str, str], np.ndarray]  # (environment, subset) -> positions in the table


@dataclass(frozen=True, kw_only=True)
class LabeledRows:
    """What tables of n images and of n features have in common."""

    #: names; positions in them are what ``env`` and ``label`` hold
    environments: list[str]
    classes: list[str]
    env: np.ndarray  #: (n,) int64
    label: np.ndarray  #: (n,) int64
    listed: np.ndarray  #: (n,) subset that a list gives each row, an index of ``SUBSETS``, or -1 where it gives none
    #: what a list says besides: name -> n values. No hash holds them, they change nothing that is trained.
    attributes: Mapping[str, list[str]]

    def __len__(self) -> int:
        return len(self.env)


def chosen_environments(present: Sequence[str], environments: Sequence[str] | None) -> list[str]:
    """List the environments to take, in order; all ``present`` ones for None.

    Raises:
        ConfigError: ``dataset.environments`` is no list, empty, or names one that is not ``present``.
    """
    if environments is None:
        return list(present)
    names = list_of_names("environments", environments, f"choose from [{','.join(present)}]")
    if not names:
        raise ConfigError(f"dataset.environments=[] is no list of names; choose from [{','.join(present)}]")
    for env in names:
        if env not in present:
            raise ConfigError(f"dataset.environments names {env}, which is not there; choose from {', '.join(present)}")
    return names


def check_classes(names: Sequence[str], labels: Sequence[str], present: set[tuple[str, str]], classes: str) -> None:
    """Refuse a table with unclear class names, an environment without images, or environments of different classes.

    Args:
        names: of the environments.
        labels: names of the classes.
        present: (environment, class) pairs that have images.
        classes: ``same`` refuses environments with different classes, ``union`` allows them.

    Raises:
        DataError: an environment lacks a class, or all; see also :func:`~dgbench.data.description.check_names`.
    """
    check_names("classes", labels)
    for env in names:
        lacking = [label for label in labels if (env, label) not in present]
        if len(lacking) == len(labels):
            raise DataError(
                f"environment {env} holds no images; fill its folder or leave it out of dataset.environments"
            )
        if lacking and classes == "same":
            raise DataError(
                f"environment {env} has no images of class {some_of(lacking)}, which others have; add some, or allow "
                "it with dataset.classes=union"
            )


@dataclass(frozen=True)
class Section:
    """Images that are corrupted alike."""

    name: str  #: unique; part of the seed and of the file's name
    corruption: str | None  #: what is done to them; None leaves them clean
    positions: np.ndarray  #: (m,) of the clean images in their store


def cut(images: np.ndarray, share: float, seed: int, *purpose: str) -> tuple[np.ndarray, np.ndarray]:
    """Split images at random, by a seed for a purpose: a share of them, rounded down, and the others."""
    shuffled = images[np.random.default_rng(derive(seed, *purpose)).permutation(len(images))]
    n = int(len(images) * share)
    return shuffled[:n], shuffled[n:]


def counts_of(subsets: Subsets) -> Counts:
    """Count the images of each subset: environment -> ``train``, ``val``, ``test`` -> images."""
    counts: dict[str, dict[str, int]] = {}
    for (env, subset), positions in subsets.items():
        counts.setdefault(env, dict.fromkeys(SUBSETS, 0))[subset] = len(positions)
    return counts


def subsets_of(table: LabeledRows, kept: np.ndarray, val_fraction: float, seed: int) -> Subsets:
    """Split every environment into positions of ``train``, ``val`` and ``test``; only a list puts rows into ``test``.

    An environment whose images are all listed as ``val`` or ``test`` has no others, and cannot be trained on.

    Args:
        table: the images, or features.
        kept: (n,) bool, those that count.
        val_fraction: share of an environment's images in its val subset.
        seed: decides the split.

    Raises:
        ConfigError: a fraction that leaves a subset empty.
    """
    return {
        (env, subset): positions
        for number, env in enumerate(table.environments)
        for subset, positions in _split(table, number, kept, val_fraction, seed).items()
    }


def drawn(val_fraction: float, seed: int) -> str:
    """Say that images for validation are a share of every environment's."""
    return f"{val_fraction:.3g} of each environment's images, drawn by dataset.split_seed={seed}"


def origin_of_val(table: LabeledRows, val_fraction: float, seed: int) -> str:
    """Say where the images for validation come from: the list, or a share of every environment."""
    listed = set(table.env[table.listed == SUBSETS.index("val")].tolist())
    if not listed:
        return drawn(val_fraction, seed)
    others = len(table.environments) - len(listed)
    if not others:
        return "as listed"
    return f"as listed in {len(listed)} environments, of {others} others {drawn(val_fraction, seed)}"


def _split(table: LabeledRows, number: int, kept: np.ndarray, val_fraction: float, seed: int) -> dict[str, np.ndarray]:
    """Split the environment of this number into the positions of its subsets."""
    name = table.environments[number]
    rows = np.flatnonzero((table.env == number) & kept)
    listed = table.listed[rows]
    test, val = rows[listed == SUBSETS.index("test")], rows[listed == SUBSETS.index("val")]
    train = rows[(listed == -1) | (listed == SUBSETS.index("train"))]
    if len(train) and not len(val):
        val, train = cut(train, val_fraction, seed, "split", name)
    if len(train) == 0 < len(val) + len(test):
        return {"train": train, "val": val, "test": test}
    if not len(val) or not len(train):
        raise ConfigError(
            f"environment {name} has {len(train)} train and {len(val)} val images; use dataset.val_fraction in (0, 1) "
            "and more images"
        )
    return {"train": train, "val": val, "test": test}

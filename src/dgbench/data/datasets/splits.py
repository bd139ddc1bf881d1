"""Which rows of a table of images or features count, and how each environment's are split; no torch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dgbench.data.datasets.image_table import ImageTable
from dgbench.data.description import SUBSETS, Counts
from dgbench.errors import ConfigError, DataError
from dgbench.seeding import derive

log = logging.getLogger(__name__)

Subsets = Mapping[tuple[str, str], np.ndarray]  # (environment, subset) -> positions in the table


class LabeledRows(Protocol):
    """What tables of images and of features have in common: environments and listed subsets of n rows."""

    @property
    def environments(self) -> list[str]:
        """Names; positions in them are what ``env`` holds."""

    @property
    def env(self) -> np.ndarray:
        """(n,) int64."""

    @property
    def listed(self) -> np.ndarray:
        """(n,) subset that a list gives each row, an index of ``SUBSETS``, or -1 where it gives none."""


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


def cut(images: np.ndarray, share: float, seed: int, *purpose: str) -> tuple[np.ndarray, np.ndarray]:
    """A share of the images, drawn by a seed for a purpose, and the others."""
    shuffled = images[np.random.default_rng(derive(seed, *purpose)).permutation(len(images))]
    n = int(len(images) * share)
    return shuffled[:n], shuffled[n:]


def counts_of(subsets: Subsets) -> Counts:
    """Environment -> ``train``, ``val``, ``test`` -> images."""
    counts: dict[str, dict[str, int]] = {}
    for (env, subset), positions in subsets.items():
        counts.setdefault(env, dict.fromkeys(SUBSETS, 0))[subset] = len(positions)
    return counts


def usable(table: ImageTable, bad: Mapping[int, str], on_bad_image: str) -> np.ndarray:
    """(n,) bool: which images count.

    Args:
        table: the images.
        bad: position -> why an image cannot be decoded.
        on_bad_image: ``fail`` or ``skip``.

    Raises:
        DataError: an image that cannot be decoded, with ``fail``; no image that can.
    """
    kept = np.ones(len(table), bool)
    if not bad:
        return kept
    kept[list(bad)] = False
    first, why = min(bad.items())
    text = f"{table.root / table.paths[first]} cannot be decoded ({why})"
    if len(bad) > 1:
        text += f", nor can {len(bad) - 1} other images"
    if not kept.any():
        raise DataError(f"{text}; no image is left")
    if on_bad_image == "fail":
        raise DataError(f"{text}; fix or delete it, or use dataset.on_bad_image=skip")
    log.warning("%s; left out (dataset.on_bad_image=skip)", text)
    return kept


def subsets_of(table: LabeledRows, kept: np.ndarray, val_fraction: float, seed: int) -> Subsets:
    """Positions of ``train``, ``val`` and ``test`` of every environment; ``test`` holds what a list names so.

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
        for e, env in enumerate(table.environments)
        for subset, positions in _split(table, e, kept, val_fraction, seed).items()
    }


def _split(table: LabeledRows, e: int, kept: np.ndarray, val_fraction: float, seed: int) -> dict[str, np.ndarray]:
    """Positions of each subset of environment number e."""
    name = table.environments[e]
    own = np.flatnonzero((table.env == e) & kept)
    listed = table.listed[own]
    test, val = own[listed == SUBSETS.index("test")], own[listed == SUBSETS.index("val")]
    train = own[(listed == -1) | (listed == SUBSETS.index("train"))]
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

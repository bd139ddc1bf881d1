"""Environments whose images lie in files: one folder each, or a column of a list."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.data.augment import Augmentation
from dgbench.data.environments import Environments, Pass
from dgbench.data.image_store import ImageStore
from dgbench.data.image_table import SUBSETS, ImageTable
from dgbench.errors import ConfigError, DataError
from dgbench.seeding import derive
from dgbench.types import Score

log = logging.getLogger(__name__)

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}

PART_BYTES = (8 * 2**20, 256 * 2**20)  # images augmented at once on a CPU (measured), and on others


class FolderEnvironments(Environments):
    """Environments of photographs, drawings, ... in files.

    Each environment is split once, from ``split_seed`` alone: ``val_fraction`` of its images are ``val`` (DomainBed's
    out-split), the rest is ``train`` (its in-split). Rows follow DomainBed:

    - ``val``, every environment: the out-split, always with plain transforms. (DomainBed scores the out-splits of
      training environments on augmented images; SWAD and later work do not.) Oracle selection reads those of
      held-out environments.
    - ``test``, environments that a member never trained on: the in-split. Environments it trained on have no ``test``
      row, since no images of theirs are left.
    - ``train``, environments that it trained on: the in-split, with plain transforms.

    Where a list names images of an environment ``test``, these are its ``test`` subset in every fold, also where the
    member trained on that environment, and train and val are drawn from the others (or are what the list says).

    Args:
        dataset: name for the rows.
        table: the images.
        store: their pixels.
        side: of the images, in pixels.
        val_fraction: share of an environment's images in its val subset.
        on_bad_image: ``fail`` or ``skip`` images that cannot be decoded.
        normalize: mean and standard deviation of the three channels, of values in [0, 1]; None for ImageNet's.
        augmentation: what training images go through; None is nothing.
        split_seed: decides the split.
        variant: what else tells this form of the dataset from others, for the rows.

    Raises:
        ConfigError: an unknown choice, or a fraction that leaves a subset empty.
        DataError: an image that cannot be decoded.
    """

    beyond = False

    def __init__(
        self,
        *,
        dataset: str,
        table: ImageTable,
        store: ImageStore,
        side: int,
        val_fraction: float,
        on_bad_image: str,
        normalize: Mapping[str, Sequence[float] | None],
        augmentation: Augmentation | None,
        split_seed: int,
        variant: Mapping[str, Any],
    ) -> None:
        self.table, self.store = table, store
        self.given, self.n_classes, self.image = list(table.environments), len(table.classes), (3, side, side)
        kept = usable(table, store, on_bad_image)
        self._subsets = {
            (env, subset): positions
            for e, env in enumerate(self.given)
            for subset, positions in _split(table, e, kept, val_fraction, split_seed).items()
        }
        self._identity = {
            "dataset": dataset,
            "variant": {
                **variant,
                "image_size": side,
                "val_fraction": val_fraction,
                "images": int(kept.sum()),
                "files": table.fingerprint(kept),
            },
            "base": "files",
            "evaluation": "sampled",
            "data_seed": 0,
            "split_seed": split_seed,
            "given": self.given,
        }
        self.labels = torch.from_numpy(table.label)
        self.augmentation = augmentation
        self.mean, self.std = (_three(normalize, key) for key in ("mean", "std"))
        self.device = torch.device("cpu")

    def identity(self) -> dict[str, Any]:
        return dict(self._identity)

    def to(self, device: torch.device) -> None:
        self.device = device
        self.store.to(device)
        self.labels, self.mean, self.std = (t.to(device) for t in (self.labels, self.mean, self.std))

    def subset(self, env: str, name: str) -> np.ndarray:
        return self._subsets[env, name]

    def labels_at(self, indices: np.ndarray) -> np.ndarray:
        labels: np.ndarray = self.table.label[indices]
        return labels

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        images, _ = self.store.rows(indices)
        return self._normalized(self._scaled(images)), self._labels(indices)

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"augmentation": self.augmentation.draw(rng, n)} if self.augmentation else {}

    def gather_for_training(self, indices: Tensor, noise: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor]:
        if self.augmentation is None:
            return self.gather(indices)
        images, sizes = self.store.rows(indices)
        uniform = noise["augmentation"]
        out = torch.empty(images.shape, dtype=torch.get_default_dtype(), device=self.device)
        step = max(1, PART_BYTES[self.device.type != "cpu"] // (4 * math.prod(self.image)))
        for first in range(0, len(images), step):
            part = slice(first, first + step)
            out[part] = self._normalized(self.augmentation(self._scaled(images[part]), uniform[part], sizes[part]))
        return out, self._labels(indices)

    def expect(self, coming: Iterable[Tensor]) -> None:
        self.store.expect(coming)

    def _scaled(self, images: Tensor) -> Tensor:
        """uint8 images as floats in [0, 1] on the device of training."""
        return images.to(self.device, non_blocking=True).to(torch.get_default_dtype()).div_(255)

    def _normalized(self, images: Tensor) -> Tensor:
        return images.sub_(self.mean.to(images)).div_(self.std.to(images))

    def _labels(self, indices: Tensor) -> Tensor:
        return self.labels[indices.to(self.device)]

    def scores(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[Score]:
        found = []
        for subset in subsets:
            for env in self.given:
                name = self._judged(env, subset, env in training)
                if name:
                    found.append(Score(env, subset, {f"{name}/{env}": 1.0}))
        return found

    def _judged(self, env: str, subset: str, trained_on: bool) -> str | None:
        """Which images are the ``subset`` of an environment to a member; None where there are none."""
        if subset == "test":
            listed = len(self._subsets[env, "test"]) > 0
            return "test" if listed else None if trained_on else "train"
        return None if subset == "train" and not trained_on else subset

    def passes(self, names: Sequence[str]) -> dict[str, Pass]:
        found = {}
        for name in names:
            subset, _, env = name.partition("/")
            found[name] = Pass(torch.from_numpy(self._subsets[env, subset]))
        return found


def usable(table: ImageTable, store: ImageStore, on_bad_image: str) -> np.ndarray:
    """(n,) bool: which images count."""
    if on_bad_image not in ("fail", "skip"):
        raise ConfigError(f"dataset.on_bad_image={on_bad_image} is unknown; choose fail or skip")
    kept = np.ones(len(table), bool)
    if not store.bad:
        return kept
    kept[list(store.bad)] = False
    first, why = min(store.bad.items())
    text = f"{table.root / table.paths[first]} cannot be decoded ({why})"
    if len(store.bad) > 1:
        text += f", nor can {len(store.bad) - 1} other images"
    if on_bad_image == "fail":
        raise DataError(f"{text}; mend or delete it, or use dataset.on_bad_image=skip")
    log.warning("%s; left out (dataset.on_bad_image=skip)", text)
    return kept


def _split(table: ImageTable, e: int, kept: np.ndarray, val_fraction: float, seed: int) -> dict[str, np.ndarray]:
    """Positions of each subset of environment number e."""
    name = table.environments[e]
    own = np.flatnonzero((table.env == e) & kept)
    listed = table.listed[own]
    test, val = own[listed == SUBSETS.index("test")], own[listed == SUBSETS.index("val")]
    train = own[(listed == -1) | (listed == SUBSETS.index("train"))]
    if not len(val):
        n_val = int(len(train) * val_fraction)
        shuffled = train[np.random.default_rng(derive(seed, "split", name)).permutation(len(train))]
        val, train = shuffled[:n_val], shuffled[n_val:]
    if not len(val) or not len(train):
        raise ConfigError(
            f"environment {name} has {len(train)} train and {len(val)} val images; use dataset.val_fraction in (0, 1) "
            "and more images"
        )
    return {"train": train, "val": val, "test": test}


def _three(normalize: Mapping[str, Sequence[float] | None], key: str) -> Tensor:
    """(3, 1, 1) values of the channels."""
    try:
        given = IMAGENET[key] if normalize[key] is None else normalize[key]
        values = torch.tensor([float(value) for value in given or ()], dtype=torch.float64)
    except (TypeError, ValueError, KeyError):
        values = torch.empty(0)
    if len(values) != 3 or (key == "std" and not (values > 0).all()):
        raise ConfigError(f"dataset.normalize.{key} is not three numbers (std above 0); ImageNet's are the default")
    return values.view(3, 1, 1)

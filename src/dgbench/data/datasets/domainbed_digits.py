"""RotatedMNIST and ColoredMNIST as DomainBed draws them (Gulrajani and Lopez-Paz, 2021). Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.data.datasets.base_images import (
    DIGITS_SIDE,
    IMAGES,
    base_name,
    check_base,
    content,
    is_there,
    need_mnist,
)
from dgbench.data.datasets.splits import Subsets
from dgbench.data.datasets.spurious import check_given, environment_name
from dgbench.data.description import DatasetInfo
from dgbench.data.option_checks import check_name, check_numbers, check_path, check_seeds, check_share, is_number, shown
from dgbench.errors import ConfigError
from dgbench.seeding import derive

if TYPE_CHECKING:
    from dgbench.data.datasets.dealt_environments import DealtEnvironments, Maker

SIDE = 28
SEEDS = 2**64  # of torch


@dataclass(frozen=True, kw_only=True)
class DealtDigits(ABC):
    """What RotatedMNIST and ColoredMNIST of DomainBed have in common.

    All base images (MNIST's training images, then its test images) are permuted, and environment i of E gets those
    at places i, i + E, ... of the permutation. Which images these are, and whatever else is drawn, is what DomainBed
    draws with its global generator of torch seeded with ``data_seed``; DomainBed takes its run seed, which differs
    from run to run, so that its models are not tested on the same images.

    Args:
        name: of the dataset, in the rows.
        base, data_dir: see :func:`~dgbench.data.datasets.base_images.load_base_images`; the digits stand in for MNIST
            with 8 x 8 pixels.
        val_fraction: share of an environment's images in its val subset.
        data_seed: decides which images go where, and what else is drawn.
        split_seed: decides the split into train and val.
    """

    name: str
    base: str
    data_dir: str
    val_fraction: float
    data_seed: int
    split_seed: int

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """As :meth:`~dgbench.data.description.DatasetOptions.describe`.

        With ``base=auto`` this is MNIST where it is on disk. Only ``download`` (or :meth:`build`) tries to fetch it,
        once per process and folder; from then on every answer is the outcome of that.
        """
        return self._planned(absent_ok, download)[0]

    def build(self) -> DealtEnvironments:
        """The environments; MNIST is downloaded where that is asked for and possible."""
        info, subsets = self._planned(absent_ok=False, download=True)

        from dgbench.data.datasets.base_images import load_base_images
        from dgbench.data.datasets.dealt_environments import DealtEnvironments

        images = load_base_images(self.base, self._folder(), SIDE)
        return DealtEnvironments(info, subsets, images, self._maker())

    @abstractmethod
    def _environments(self) -> list[str]:
        """Names of the environments; refuses values that cannot work."""

    @abstractmethod
    def _maker(self) -> Maker:
        """What becomes of the base images of an environment."""

    @abstractmethod
    def _variant(self) -> dict[str, Any]:
        """What else tells this form of the dataset from others."""

    @property
    @abstractmethod
    def _channels_and_classes(self) -> tuple[int, int]:
        """Channels of an image, and K."""

    def _planned(self, absent_ok: bool, download: bool) -> tuple[DatasetInfo, Subsets]:
        """The dataset, and the positions of each subset; images lie environment after environment."""
        names = self._environments()
        check_name(self.name)
        check_seeds(data_seed=self.data_seed, split_seed=self.split_seed)
        if self.data_seed >= SEEDS:
            raise ConfigError(f"dataset.data_seed={self.data_seed} is not below 2^64; 0 is the default")
        check_share("val_fraction", self.val_fraction, "DomainBed uses 0.2")
        check_base(self.base, SIDE)
        folder = self._folder()
        base = base_name(self.base, folder, download)
        there = is_there(base, folder, download)
        if not there and not absent_ok:
            need_mnist(folder, download)
        side = DIGITS_SIDE if base == "digits" else SIDE
        subsets = self._split(names, IMAGES[base]) if there else {}
        channels, n_classes = self._channels_and_classes
        info = DatasetInfo(
            name=self.name,
            variant={**self._variant(), "val_fraction": self.val_fraction},
            base=base,
            evaluation="sampled",
            data_seed=self.data_seed,
            split_seed=self.split_seed,
            given=tuple(names),
            everywhere=tuple(names),
            n_classes=n_classes,
            image=(channels, side, side),
            beyond=False,
            counts={env: {part: len(subsets[env, part]) for part in ("train", "val", "test")} for env in names}
            if there
            else {},
            content=content(base, folder) if there else "",
        )
        return info, subsets

    def _split(self, names: list[str], n: int) -> Subsets:
        """Which of n images dealt to the environments are whose ``train`` and ``val``; ``test`` is empty."""
        subsets, first = {}, 0
        for i, name in enumerate(names):
            count = len(range(i, n, len(names)))
            n_val = int(count * self.val_fraction)
            if not 0 < n_val < count:
                raise ConfigError(
                    f"environment {name} has {count} images, {n_val} of them for val: one subset is empty; use fewer "
                    "environments, more images (dataset.base=mnist) or another dataset.val_fraction"
                )
            shuffled = first + np.random.default_rng(derive(self.split_seed, "split", name)).permutation(count)
            subsets[name, "val"], subsets[name, "train"] = shuffled[:n_val], shuffled[n_val:]
            subsets[name, "test"] = shuffled[:0]
            first += count
        return subsets

    def _folder(self) -> Path:
        return check_path("data_dir", self.data_dir, "name the folder that holds MNIST/raw, or set paths.data_dir")


def check_environments(key: str, names: list[str], values: object) -> list[str]:
    """The names; refuses fewer than two environments, and one given twice."""
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"dataset.{key}={shown(values)} is not two or more different environments; correct it")
    return names


@dataclass(frozen=True, kw_only=True)
class RotatedMNIST(DealtDigits):
    """Gray digits of ten classes, turned counter-clockwise by the angle of their environment.

    Args:
        angles: in degrees, one environment each, e.g. ``[0, 15, 30, 45, 60, 75]``; named ``0``, ``15``, ...
    """

    angles: Sequence[float]

    _channels_and_classes = (1, 10)

    def _environments(self) -> list[str]:
        check_numbers("angles", self.angles)
        return check_environments("angles", [f"{angle:g}" for angle in self.angles], self.angles)

    def _variant(self) -> dict[str, Any]:
        return {"angles": list(self.angles)}

    def _maker(self) -> Maker:
        from dgbench.data.transforms.paint import rotated

        return lambda i, images, classes, generator: (rotated(images, self.angles[i]), classes)


@dataclass(frozen=True, kw_only=True)
class ColoredMNIST(DealtDigits):
    """Colored digits: label digit < 5, flipped with ``label_noise``; color from the final label, flipped with e.

    The image has two channels; the digit stands in the channel of its color, the other is zero. Unlike in
    :class:`~dgbench.data.datasets.spurious.SRCMNIST`, no image is kept apart to judge other environments: a held-out
    environment is tested on its own images.

    Args:
        given: e of the environments.
        label_noise: probability that a label is flipped.
    """

    given: Sequence[float]
    label_noise: float

    _channels_and_classes = (2, 2)

    def _environments(self) -> list[str]:
        check_given(self.given)
        if not is_number(self.label_noise) or not 0 <= self.label_noise < 1:
            raise ConfigError(f"dataset.label_noise={shown(self.label_noise)} is not in [0, 1); 0.25 is the paper's")
        return check_environments("given", [environment_name(e) for e in self.given], self.given)

    def _variant(self) -> dict[str, Any]:
        return {"label_noise": self.label_noise}

    def _maker(self) -> Maker:
        import torch

        from dgbench.data.transforms.paint import two_channel_color

        def colored(
            i: int, images: torch.Tensor, classes: torch.Tensor, generator: torch.Generator
        ) -> tuple[torch.Tensor, torch.Tensor]:
            def flips(probability: float) -> torch.Tensor:
                return torch.rand(len(classes), generator=generator, dtype=torch.float32) < probability

            labels = ((classes < 5) ^ flips(self.label_noise)).long()
            return two_channel_color(images, labels ^ flips(self.given[i])), labels

        return colored

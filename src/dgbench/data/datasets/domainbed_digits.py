"""RotatedMNIST and ColoredMNIST as DomainBed draws them (Gulrajani and Lopez-Paz, 2021).

Imports no torch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator

from dgbench.data.datasets.base_images import LARGE_OR_SMALL, Base, base_facts, load_base_images
from dgbench.data.datasets.splits import Subsets, counts_of, cut, drawn
from dgbench.data.datasets.spurious import Given, LabelNoise, environment_name
from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.options import DataFolder, DatasetOptions, Numbers, Seed, ValFraction, expanded
from dgbench.errors import ConfigError
from dgbench.validation import shown

if TYPE_CHECKING:
    import torch

    from dgbench.data.environments import Environments

SIDE = 28


def _below_torchs(seed: int) -> int:
    if seed >= 2**64:
        raise ValueError("is not below 2^64; 0 is the default")
    return seed


class DealtDigits(DatasetOptions):
    """What RotatedMNIST and ColoredMNIST of DomainBed have in common.

    All base images (MNIST's training images, then its test images) are permuted, and environment i
    of E gets those at places i, i + E, ... of the permutation. Which images these are, and whatever
    else is drawn, is what DomainBed draws with its global generator of torch seeded with
    ``data_seed``; DomainBed takes its run seed, which differs from run to run, so that its models
    are not tested on the same images. Keys as in ``conf/dataset``, where each is explained.
    """

    base: Base
    data_dir: DataFolder
    val_fraction: ValFraction
    data_seed: Annotated[Seed, AfterValidator(_below_torchs)]
    split_seed: Seed

    list_key: ClassVar[str]  #: the key whose values are one environment each
    name_of: ClassVar[Callable[[float], str]]  #: what an environment is called, by its value
    channels: ClassVar[int]
    n_classes: ClassVar[int]
    class_names: ClassVar[tuple[str, ...]]  #: in the order of the outputs

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """Describe the dataset, as ``SRCMNIST`` of :mod:`dgbench.data.datasets.spurious` does."""
        return self._planned(absent_ok, download)[0]

    def build(self) -> Environments:
        """Build the environments.

        MNIST is downloaded if ``base`` asks for it, it is absent and a mirror answers.
        """
        info, subsets = self._planned(absent_ok=False, download=True)

        import torch

        from dgbench.data.environments import Catalog, Environments, Table, TensorStore

        base = load_base_images(self.base, expanded(self.data_dir), SIDE)
        values = getattr(self, self.list_key)
        generator = torch.Generator().manual_seed(info.data_seed)
        order = torch.randperm(len(base.images), generator=generator)
        positions = [order[i :: len(values)] for i in range(len(values))]
        images = base.images
        if base.peak != 255:
            images = ((images.int() * 255 + base.peak // 2) // base.peak).byte()
        parts = [
            self._images_and_labels(value, images[chosen], base.classes[chosen], generator)
            for value, chosen in zip(values, positions, strict=True)
        ]
        pixels, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        names = torch.cat(positions).tolist()  # positions among the base images
        classes = tuple(map(str, range(info.n_classes)))
        catalog = Catalog(labels.numpy(), classes, Preprocessing.unchanged(info.image), names)
        return Environments(Table(info, subsets), catalog, TensorStore(pixels, labels, 255))

    @abstractmethod
    def _images_and_labels(
        self, value: float, images: torch.Tensor, classes: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Map an environment's base images and classes to its images and labels.

        They are (n, 1, S, S) uint8 and (n,), and become (n, C, S, S) uint8 and (n,).
        """

    @abstractmethod
    def _variant(self) -> dict[str, Any]:
        """Return the further settings that tell this form of the dataset from others."""

    def _planned(self, absent_ok: bool, download: bool) -> tuple[DatasetInfo, Subsets]:
        """Plan the dataset and the positions of each subset, environment after environment."""
        values = getattr(self, self.list_key)
        names = list(map(type(self).name_of, values))
        if len(names) < 2 or len(set(names)) < len(names):
            raise ConfigError(
                f"dataset.{self.list_key}={shown(values)} is not two or more different "
                "environments; correct it"
            )
        base = base_facts(self.base, expanded(self.data_dir), SIDE, absent_ok, download)
        subsets = {}
        first = 0
        for i, name in enumerate(names if base.n_images else ()):
            end = first + len(range(i, base.n_images, len(names)))
            images = np.arange(first, end)
            val, train = cut(images, self.val_fraction, self.split_seed, "split", name)
            if not len(val) or not len(train):
                raise ConfigError(
                    f"environment {name} has {end - first} images, {len(val)} of them for val: "
                    "one subset is empty; use fewer environments, more images "
                    "(dataset.base=mnist) or another dataset.val_fraction"
                )
            subsets[name, "val"] = val
            subsets[name, "train"] = train
            first = end
        info = DatasetInfo(
            name=self.name,
            variant={**self._variant(), "val_fraction": self.val_fraction},
            base=base.name,
            data_seed=self.data_seed,
            split_seed=self.split_seed,
            given=tuple(names),
            everywhere=tuple(names),
            n_classes=self.n_classes,
            image=(self.channels, base.side, base.side),
            counts=counts_of(subsets),
            content=base.content,
            class_names=self.class_names,
            val_from=drawn(self.val_fraction, self.split_seed),
        )
        return info, subsets


class RotatedMNIST(DealtDigits):
    """Gray digits of ten classes, turned counter-clockwise by their environment's angle.

    The rotations are those of Ghifary et al. (2015).
    """

    angles: Numbers

    list_key = "angles"
    name_of = "{:g}".format
    channels = 1
    n_classes = 10
    class_names = tuple(f"digit {k}" for k in range(10))

    def _variant(self) -> dict[str, Any]:
        return {"angles": list(self.angles)}

    def _images_and_labels(
        self, value: float, images: torch.Tensor, classes: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        from dgbench.data.transforms.paint import rotated

        return rotated(images, value), classes


class ColoredMNIST(DealtDigits):
    """Colored digits: label digit < 5, flipped with ``label_noise``.

    The color is the final label, flipped with probability e of the environment.

    The image has two channels; the digit stands in the channel of its color, the other is zero
    (Arjovsky et al., 2019). Unlike in :class:`~dgbench.data.datasets.spurious.SRCMNIST`, no image
    is kept apart to judge other environments: a held-out environment is tested on its own images.
    """

    given: Given
    label_noise: LabelNoise

    list_key = "given"
    name_of = environment_name
    channels = 2
    n_classes = 2
    class_names = LARGE_OR_SMALL

    def _variant(self) -> dict[str, Any]:
        return {"label_noise": self.label_noise}

    def _images_and_labels(
        self, value: float, images: torch.Tensor, classes: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        from dgbench.data.transforms.paint import two_channel_color

        def flips(probability: float) -> torch.Tensor:
            return torch.rand(len(classes), generator=generator, dtype=torch.float32) < probability

        labels = ((classes < 5) ^ flips(self.label_noise)).long()
        colors = labels ^ flips(value)
        return two_channel_color(images, colors), labels

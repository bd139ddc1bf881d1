"""RotatedMNIST and ColoredMNIST as DomainBed draws them (Gulrajani and Lopez-Paz, 2021). Imports no torch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator

from dgbench.data.datasets.base_images import Base, base_facts, load_base_images
from dgbench.data.datasets.splits import Subsets, counts_of, cut
from dgbench.data.datasets.spurious import Given, LabelNoise, environment_name
from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.options import DataFolder, DatasetOptions, Numbers, Seed, ValFraction, expanded
from dgbench.errors import ConfigError
from dgbench.validation import shown

if TYPE_CHECKING:
    import torch

    from dgbench.data.environments import Environments

    #: (number of the environment, (n, 1, S, S) uint8 images, (n,) classes, generator) -> (n, C, S, S) uint8 images,
    #: labels
    Maker = Callable[[int, torch.Tensor, torch.Tensor, torch.Generator], tuple[torch.Tensor, torch.Tensor]]

SIDE = 28


def _below_torchs(seed: int) -> int:
    if seed >= 2**64:
        raise ValueError("is not below 2^64; 0 is the default")
    return seed


class DealtDigits(DatasetOptions):
    """What RotatedMNIST and ColoredMNIST of DomainBed have in common.

    All base images (MNIST's training images, then its test images) are permuted, and environment i of E gets those
    at places i, i + E, ... of the permutation. Which images these are, and whatever else is drawn, is what DomainBed
    draws with its global generator of torch seeded with ``data_seed``; DomainBed takes its run seed, which differs
    from run to run, so that its models are not tested on the same images. Keys as in ``conf/dataset``, where each is
    explained.
    """

    base: Base
    data_dir: DataFolder
    val_fraction: ValFraction
    data_seed: Annotated[Seed, AfterValidator(_below_torchs)]
    split_seed: Seed

    channels: ClassVar[int]
    n_classes: ClassVar[int]

    def describe(self, *, absent_ok: bool = False, download: bool = False) -> DatasetInfo:
        """As :meth:`SRCMNIST.describe <dgbench.data.datasets.spurious.SRCMNIST.describe>`."""
        return self._planned(absent_ok, download)[0]

    def build(self) -> Environments:
        """The environments; MNIST is downloaded where that is asked for and possible."""
        info, subsets = self._planned(absent_ok=False, download=True)

        import torch

        from dgbench.data.environments import Catalog, Environments, Table, TensorStore

        base, make = load_base_images(self.base, expanded(self.data_dir), SIDE), self._maker()
        generator = torch.Generator().manual_seed(info.data_seed)
        order = torch.randperm(len(base.images), generator=generator)
        positions = [order[i :: len(info.given)] for i in range(len(info.given))]
        images = base.images if base.peak == 255 else ((base.images.int() * 255 + base.peak // 2) // base.peak).byte()
        parts = [make(i, images[chosen], base.classes[chosen], generator) for i, chosen in enumerate(positions)]
        values, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        names = torch.cat(positions).tolist()  # positions among the base images
        classes = tuple(map(str, range(info.n_classes)))
        catalog = Catalog(labels.numpy(), classes, Preprocessing.unchanged(info.image), names)
        return Environments(Table(info, subsets), catalog, TensorStore(values, labels, 255))

    @abstractmethod
    def _environments(self) -> list[str]:
        """Names of the environments."""

    @abstractmethod
    def _maker(self) -> Maker:
        """What becomes of the base images of an environment."""

    @abstractmethod
    def _variant(self) -> dict[str, Any]:
        """What else tells this form of the dataset from others."""

    def _planned(self, absent_ok: bool, download: bool) -> tuple[DatasetInfo, Subsets]:
        """The dataset, and the positions of each subset; images lie environment after environment."""
        names = self._environments()
        base = base_facts(self.base, expanded(self.data_dir), SIDE, absent_ok, download)
        subsets, first = {}, 0
        for i, name in enumerate(names if base.n_images else ()):
            end = first + len(range(i, base.n_images, len(names)))
            val, train = cut(np.arange(first, end), self.val_fraction, self.split_seed, "split", name)
            if not len(val) or not len(train):
                raise ConfigError(
                    f"environment {name} has {end - first} images, {len(val)} of them for val: one subset is empty; "
                    "use fewer environments, more images (dataset.base=mnist) or another dataset.val_fraction"
                )
            subsets[name, "val"], subsets[name, "train"] = val, train
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
        )
        return info, subsets


class RotatedMNIST(DealtDigits):
    """Gray digits of ten classes, turned counter-clockwise by the angle of their environment (Ghifary et al., 2015)."""

    angles: Numbers

    channels = 1
    n_classes = 10

    def _environments(self) -> list[str]:
        return _two_or_more("angles", [f"{angle:g}" for angle in self.angles], self.angles)

    def _variant(self) -> dict[str, Any]:
        return {"angles": list(self.angles)}

    def _maker(self) -> Maker:
        from dgbench.data.transforms.paint import rotated

        return lambda i, images, classes, generator: (rotated(images, self.angles[i]), classes)


class ColoredMNIST(DealtDigits):
    """Colored digits: label digit < 5, flipped with ``label_noise``; color from the final label, flipped with e.

    The image has two channels; the digit stands in the channel of its color, the other is zero (Arjovsky et al., 2019).
    Unlike in :class:`~dgbench.data.datasets.spurious.SRCMNIST`, no image is kept apart to judge other environments: a
    held-out environment is tested on its own images.
    """

    given: Given
    label_noise: LabelNoise

    channels = 2
    n_classes = 2

    def _environments(self) -> list[str]:
        return _two_or_more("given", [environment_name(e) for e in self.given], self.given)

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


def _two_or_more(key: str, names: list[str], values: Sequence[float]) -> list[str]:
    """The names; refuses fewer than two environments, and one given twice."""
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"dataset.{key}={shown(values)} is not two or more different environments; correct it")
    return names

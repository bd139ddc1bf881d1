"""Photographs, drawings, ... from files: normalized, and augmented for training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy

import numpy as np
import torch
from torch import Tensor

from dgbench.data.description import Preprocessing
from dgbench.data.environments import Store
from dgbench.data.store.image_store import ImageStore
from dgbench.data.transforms.augment import Augmentation

PART_BYTES = (8 * 2**20, 256 * 2**20)  # images augmented at once on a CPU (measured), and on others


class PhotographStore(Store):
    """Pictures of three channels.

    Args:
        pixels: of the pictures.
        labels: (n,) int64.
        preprocessing: shape of the images, mean and deviation of their channels, of values in [0, 1].
        augmentation: what training images go through; None is nothing.
        plain: (n,) bool, images that are not augmented either when they are trained on; None is none.
    """

    def __init__(
        self,
        pixels: ImageStore,
        labels: Tensor,
        preprocessing: Preprocessing,
        augmentation: Augmentation | None,
        plain: Tensor | None = None,
    ) -> None:
        self.pixels, self.labels, self.augmentation, self.plain = pixels, labels, augmentation, plain
        self.image, self.device = preprocessing.image, torch.device("cpu")
        self.mean, self.std = (_channels(values) for values in (preprocessing.mean, preprocessing.std))

    def over(self, pixels: ImageStore, positions: Tensor) -> PhotographStore:
        """A store of changed copies of some images, that go the same way to a network's input.

        Args:
            pixels: of n copies.
            positions: (n,) of the images here.
        """
        other = copy(self)
        other.pixels, other.labels = pixels, self.labels[positions]
        other.plain = None if self.plain is None else self.plain[positions]
        return other

    def to(self, device: torch.device) -> None:
        self.device = device
        self.pixels.to(device)
        self.labels, self.mean, self.std = (values.to(device) for values in (self.labels, self.mean, self.std))
        self.plain = None if self.plain is None else self.plain.to(device)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        images, _ = self.pixels.rows(indices)
        return self._normalized(self._scaled(images)), self._labels(indices)

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"augmentation": self.augmentation.draw(rng, n)} if self.augmentation else {}

    def gather_for_training(self, indices: Tensor, noise: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor]:
        if self.augmentation is None:
            return self.gather(indices)
        images, sizes = self.pixels.rows(indices)
        uniform = noise["augmentation"]
        plain = None if self.plain is None else self.plain[indices.to(self.device)].view(-1, 1, 1, 1)
        out = torch.empty(images.shape, dtype=torch.get_default_dtype(), device=self.device)
        step = max(1, PART_BYTES[self.device.type != "cpu"] // (4 * math.prod(self.image)))
        for first in range(0, len(images), step):
            part = slice(first, first + step)
            scaled = self._scaled(images[part])
            changed = self.augmentation(scaled, uniform[part], sizes[part])
            out[part] = self._normalized(changed if plain is None else torch.where(plain[part], scaled, changed))
        return out, self._labels(indices)

    def expect(self, coming: Iterable[Tensor]) -> None:
        self.pixels.expect(coming)

    def prepare(self, indices: Tensor) -> None:
        self.pixels.prepare(indices)

    def _scaled(self, images: Tensor) -> Tensor:
        """uint8 images as floats in [0, 1] on the device of training."""
        return images.to(self.device, non_blocking=True).to(torch.get_default_dtype()).div_(255)

    def _normalized(self, images: Tensor) -> Tensor:
        return images.sub_(self.mean.to(images)).div_(self.std.to(images))

    def _labels(self, indices: Tensor) -> Tensor:
        return self.labels[indices.to(self.device)]


def _channels(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).view(3, 1, 1)

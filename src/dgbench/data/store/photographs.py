"""Environments whose images lie in files: one folder each, or a column of a list."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from dgbench.data.datasets.image_table import ImageTable
from dgbench.data.datasets.splits import Subsets
from dgbench.data.datasets.table_environments import TableEnvironments
from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.store.image_store import ImageStore
from dgbench.data.transforms.augment import Augmentation

PART_BYTES = (8 * 2**20, 256 * 2**20)  # images augmented at once on a CPU (measured), and on others


class FolderEnvironments(TableEnvironments):
    """Environments of photographs, drawings, ... in files.

    Args:
        info: the dataset.
        table: the images.
        subsets: which images each environment trains on, validates and tests on.
        store: their pixels.
        mean, std: of the three channels, of values in [0, 1].
        augmentation: what training images go through; None is nothing.
        plain: environments whose images are not augmented either when they are trained on.
    """

    table: ImageTable

    def __init__(
        self,
        info: DatasetInfo,
        table: ImageTable,
        subsets: Subsets,
        store: ImageStore,
        mean: Sequence[float],
        std: Sequence[float],
        augmentation: Augmentation | None,
        plain: Sequence[str] = (),
    ) -> None:
        super().__init__(info, table, subsets)
        self.store = store
        self.labels = torch.from_numpy(table.label)
        self.augmentation = augmentation
        self.some_plain = bool(plain)
        self.plain = torch.from_numpy(np.isin(np.array(table.environments)[table.env], list(plain)))
        self.mean, self.std = (torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in (mean, std))
        self.device = torch.device("cpu")

    @property
    def preprocessing(self) -> Preprocessing:
        mean, std = (tuple(values.flatten().tolist()) for values in (self.mean, self.std))
        return Preprocessing(self.image, mean, std)

    def image_names(self, positions: np.ndarray) -> list[str]:
        return [self.table.paths[position] for position in positions.tolist()]

    def to(self, device: torch.device) -> None:
        self.device = device
        self.store.to(device)
        self.labels, self.plain = self.labels.to(device), self.plain.to(device)
        self.mean, self.std = self.mean.to(device), self.std.to(device)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        images, _ = self.store.rows(indices)
        return self._normalized(self._scaled(images)), self._labels(indices)

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return {"augmentation": self.augmentation.draw(rng, n)} if self.augmentation else {}

    def gather_for_training(self, indices: Tensor, noise: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor]:
        if self.augmentation is None:
            return self.gather(indices)
        images, sizes = self.store.rows(indices)
        uniform, plain = noise["augmentation"], self.plain[indices.to(self.device)]
        out = torch.empty(images.shape, dtype=torch.get_default_dtype(), device=self.device)
        step = max(1, PART_BYTES[self.device.type != "cpu"] // (4 * math.prod(self.image)))
        for first in range(0, len(images), step):
            part = slice(first, first + step)
            scaled = self._scaled(images[part])
            changed = self.augmentation(scaled, uniform[part], sizes[part])
            kept = plain[part].view(-1, 1, 1, 1)
            out[part] = self._normalized(torch.where(kept, scaled, changed) if self.some_plain else changed)
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

"""DomainBed's digits as environments: every image made once, for the environment that it was dealt to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Generator, Tensor

from dgbench.data.datasets.base_images import BaseImages
from dgbench.data.datasets.split_environments import SplitEnvironments
from dgbench.data.datasets.splits import Subsets
from dgbench.data.description import DatasetInfo

#: (number of the environment, (n, 1, S, S) uint8 images, (n,) classes, generator) -> (n, C, S, S) uint8 images, labels
Maker = Callable[[int, Tensor, Tensor, Generator], tuple[Tensor, Tensor]]


class DealtEnvironments(SplitEnvironments):
    """Digits that were dealt to environments and changed there; no augmentation, values in [0, 1].

    Args:
        info: the dataset.
        subsets: positions of the images of each environment, which lie one environment after the other.
        base: images; values are brought to 0..255 where their peak is another.
        make: what becomes of the images of an environment.
    """

    def __init__(self, info: DatasetInfo, subsets: Subsets, base: BaseImages, make: Maker) -> None:
        self.info, self.subsets = info, subsets
        self.given, self.n_classes, self.image = list(info.given), info.n_classes, info.image
        generator = Generator().manual_seed(info.data_seed)
        order = torch.randperm(len(base.images), generator=generator)
        dealt = [order[i :: len(self.given)] for i in range(len(self.given))]
        images = base.images if base.peak == 255 else ((base.images.int() * 255 + base.peak // 2) // base.peak).byte()
        made = [make(i, images[own], base.classes[own], generator) for i, own in enumerate(dealt)]
        self.images, self.labels = (torch.cat(parts) for parts in zip(*made, strict=True))
        self.sources = torch.cat(dealt)

    def image_names(self, positions: np.ndarray) -> list[str]:
        """Positions among the base images."""
        return [str(source) for source in self.sources[torch.from_numpy(positions)].tolist()]

    def to(self, device: torch.device) -> None:
        self.images, self.labels = self.images.to(device), self.labels.to(device)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        indices = indices.to(self.images.device)
        return self.images[indices].to(torch.get_default_dtype()).div_(255), self.labels[indices]

"""Images or vectors that lie in memory, or on the device of training."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dgbench.data.environments import Store

#: (n, C, H, W) images in [0, 1] and (n,) feature values in 0..K-1 -> (n, C', H, W)
Painter = Callable[[Tensor, Tensor], Tensor]


class TensorStore(Store):
    """Values as they are, without augmentation.

    Args:
        values: (n, C, H, W) images or (n, d) vectors.
        labels: (n,) int64.
        peak: value that becomes 1.0.
    """

    def __init__(self, values: Tensor, labels: Tensor, peak: int = 1) -> None:
        self.values, self.labels, self.peak = values, labels, peak
        self.image = tuple(values.shape[1:])

    def to(self, device: torch.device) -> None:
        self.values, self.labels = self.values.to(device), self.labels.to(device)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        indices = indices.to(self.values.device)
        values = self.values[indices].to(torch.get_default_dtype())
        return values if self.peak == 1 else values.div_(self.peak), self.labels[indices]


class PaintedStore(TensorStore):
    """Images into which a spurious feature is painted when they are gathered.

    Args:
        images: (n, C, H, W).
        labels: (n,) int64.
        peak: value that becomes 1.0.
        feature: (n,) each image's own, one of K values.
        paint: draws a feature.
    """

    def __init__(self, images: Tensor, labels: Tensor, peak: int, feature: Tensor, paint: Painter) -> None:
        super().__init__(images, labels, peak)
        self.feature, self.paint = feature, paint
        probe = paint(images[:1] / peak, feature[:1])
        self.image = tuple(probe.shape[1:])

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.feature = self.feature.to(device)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        images, labels = super().gather(indices)
        indices = indices.to(self.feature.device)
        return self.paint(images, self.feature[indices] if feature is None else feature.to(images.device)), labels

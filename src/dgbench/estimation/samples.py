"""Images or features with labels of a sample's own: what classifiers of shift train on and are judged on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dgbench.data.environments import Environments, Store, Table
from dgbench.data.minibatches import RunOrder
from dgbench.seeding import derive


class SampleStore(Store):
    """A view of images in which the same image may have different labels in different samples.

    Args:
        source: the images, or their features.

    Attributes:
        environments: the samples by name, each a ``train`` subset.
    """

    def __init__(self, source: Environments) -> None:
        self.source, self.image = source.store, source.store.image
        self._subsets: dict[tuple[str, str], np.ndarray] = {}
        self.environments = Environments(Table(source.info, self._subsets), source.catalog, self)
        self._positions: list[np.ndarray] = []
        self._labels: list[np.ndarray] = []
        self._n = 0
        self._device = torch.device("cpu")
        self._tables: tuple[Tensor, Tensor] | None = None

    def add(self, name: str, positions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Images under a name, with labels of their own.

        Args:
            name: of the sample.
            positions: (n,) of the images in the source.
            labels: (n,) int64 in 0..K-1.

        Returns:
            (n,) their positions here.
        """
        rows = np.arange(self._n, self._n + len(positions))
        self._positions.append(positions)
        self._labels.append(labels)
        self._n, self._subsets[name, "train"], self._tables = self._n + len(positions), rows, None
        return rows

    def to(self, device: torch.device) -> None:
        self.source.to(device)
        self._device, self._tables = device, None

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if self._tables is None:
            positions, labels = (torch.from_numpy(np.concatenate(parts)) for parts in (self._positions, self._labels))
            self._tables = positions.to(self._device), labels.to(self._device)
        positions, labels = self._tables
        rows = indices.to(self._device)
        return self.source.gather(positions[rows])[0], labels[rows]


class EpochOrder(RunOrder):
    """Minibatches without replacement, epoch by epoch; what does not fill one is left out.

    Args:
        environments, training, batch_size, seed: as of :class:`RunOrder`.
    """

    def __init__(self, environments: Environments, training: Sequence[str], batch_size: int, seed: int) -> None:
        super().__init__(environments, training, batch_size, seed)
        self.per_epoch = min(len(subset) for subset in self._subsets) // batch_size
        self._epoch: tuple[int, list[np.ndarray]] | None = None

    def order(self, step: int) -> np.ndarray:
        epoch, k = divmod(step, self.per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            shuffled = [
                np.random.default_rng(derive(self.order_seed, "epoch", env, epoch)).permutation(subset)
                for env, subset in zip(self.training, self._subsets, strict=True)
            ]
            self._epoch = (epoch, shuffled)
        rows = slice(k * self.batch_size, (k + 1) * self.batch_size)
        return np.concatenate([own[rows] for own in self._epoch[1]])

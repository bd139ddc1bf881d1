"""Environments in memory: features as arrays, and samples whose images have labels of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from dgbench.data.description import DatasetInfo
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.minibatches import RunOrder
from dgbench.seeding import derive
from dgbench.tensors import ErrorRecipe


class _Unscored(Environments):
    """Environments in which no errors are recorded."""

    def error_recipes(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[ErrorRecipe]:
        return []

    def eval_sets(self, names: Sequence[str]) -> Mapping[str, EvalSet]:
        return {}


class ArrayEnvironments(_Unscored):
    """Environments of features in memory.

    Args:
        sides: name -> (n, m) features and (n,) int64 labels in 0..K-1.
    """

    def __init__(self, sides: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        self.given = list(sides)
        self._x = torch.from_numpy(np.concatenate([x for x, _ in sides.values()])).to(torch.get_default_dtype())
        self._y = torch.from_numpy(np.concatenate([y for _, y in sides.values()]).astype(np.int64))
        ends = np.cumsum([0, *(len(y) for _, y in sides.values())])
        self._rows = {env: np.arange(ends[i], ends[i + 1]) for i, env in enumerate(self.given)}
        self.image, self.n_classes = tuple(self._x.shape[1:]), int(self._y.max()) + 1
        self.info = DatasetInfo(
            name="arrays", variant={}, base="arrays", evaluation="sampled", data_seed=0, split_seed=0,
            given=tuple(self.given), everywhere=tuple(self.given), n_classes=self.n_classes, image=(0, 0, 0),
            beyond=False,
        )  # fmt: skip

    def to(self, device: torch.device) -> None:
        self._x, self._y = self._x.to(device), self._y.to(device)

    def subset(self, env: str, name: str) -> np.ndarray:
        return self._rows[env] if name == "train" else self._rows[env][:0]

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows = indices.to(self._x.device)
        return self._x[rows], self._y[rows]


class SampleStore(_Unscored):
    """A view of images in which the same image may have different labels in different samples.

    Args:
        source: the images, or their features.
        n_classes: K of the samples.
    """

    def __init__(self, source: Environments, n_classes: int) -> None:
        self.source, self.info, self.given = source, source.info, source.given
        self.image, self.n_classes = source.image, n_classes
        self._subsets: dict[str, np.ndarray] = {}
        self._positions: list[np.ndarray] = []
        self._labels: list[np.ndarray] = []
        self._n = 0
        self._device = torch.device("cpu")
        self._tables: tuple[Tensor, Tensor] | None = None

    def add(self, name: str, positions: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Images under a name, with labels of their own.

        Args:
            name: by which :meth:`subset` knows them.
            positions: (n,) of the images in the source.
            labels: (n,) int64 in 0..K-1.

        Returns:
            (n,) their positions here.
        """
        rows = np.arange(self._n, self._n + len(positions))
        self._positions.append(positions)
        self._labels.append(labels)
        self._n, self._subsets[name], self._tables = self._n + len(positions), rows, None
        return rows

    def to(self, device: torch.device) -> None:
        self.source.to(device)
        self._device, self._tables = device, None

    def subset(self, env: str, name: str) -> np.ndarray:
        return self._subsets[env]

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if self._tables is None:
            positions, labels = (torch.from_numpy(np.concatenate(parts)) for parts in (self._positions, self._labels))
            self._tables = positions.to(self._device), labels.to(self._device)
        positions, labels = self._tables
        rows = indices.to(self._device)
        return self.source.gather(positions[rows])[0], labels[rows]

    def labels_at(self, indices: np.ndarray) -> np.ndarray:
        return np.asarray(np.concatenate(self._labels)[indices])


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
        return np.concatenate([positions[rows] for positions in self._epoch[1]])


# Training classifiers of shift: those of one shape as one stack, on the machinery that trains every run.

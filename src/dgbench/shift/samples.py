"""Images or features with labels of a sample's own: what classifiers of shift train on and are judged on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dgbench.data.environments import Environments, Store, Table
from dgbench.data.minibatches import RunOrder
from dgbench.seeding import derive
from dgbench.shift.estimators import Fitting, Labeled


class SampleStore(Store):
    """A view of images in which the same image may have different labels in different samples.

    It holds the samples of several classifiers that train together: ``I/SIDE`` that number I trains on,
    ``I/validation/SIDE`` that choose its step, ``I/predicted`` whose outputs are wanted (without labels).

    Attributes:
        environments: the samples by name, each a ``train`` subset; their catalog is that of the source.

    Args:
        source: the images, or their features.
        fittings: the classifiers, all of K classes.
    """

    def __init__(self, source: Environments, fittings: Sequence[Fitting]) -> None:
        self.source, self.image = source.store, source.store.image
        samples: dict[str, Labeled] = {}
        for i, fitting in enumerate(fittings):
            samples |= {f"{i}/{side}": sample for side, sample in enumerate(fitting.sides)}
            samples |= {f"{i}/validation/{side}": sample for side, sample in enumerate(fitting.validation)}
            samples[f"{i}/predicted"] = Labeled(fitting.predicted, np.zeros(len(fitting.predicted), dtype=np.int64))
        ends = np.cumsum([0, *(len(sample.positions) for sample in samples.values())])
        self._rows = {name: np.arange(ends[k], ends[k + 1]) for k, name in enumerate(samples)}
        self._positions = torch.from_numpy(np.concatenate([sample.positions for sample in samples.values()]))
        self._labels = torch.from_numpy(np.concatenate([sample.labels for sample in samples.values()]))
        table = Table(source.info, {(name, "train"): rows for name, rows in self._rows.items()})
        self.environments = Environments(table, source.catalog, self)

    def to(self, device: torch.device) -> None:
        self.source.to(device)
        self._positions, self._labels = self._positions.to(device), self._labels.to(device)

    def validation(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """(n,) rows of the images that choose the step of a classifier, and (n,) their sides, 0 for p and 1 for q."""
        names = [f"{i}/validation/{side}" for side in (0, 1)]
        parts = [self._rows[name] for name in names if name in self._rows]
        return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(rows) for rows in parts])

    def predicted(self, i: int) -> np.ndarray:
        """(n,) rows of the images whose outputs are wanted of a classifier."""
        return self._rows[f"{i}/predicted"]

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows = indices.to(self._positions.device)
        return self.source.gather(self._positions[rows])[0], self._labels[rows]


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

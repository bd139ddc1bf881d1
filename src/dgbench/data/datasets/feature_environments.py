"""Environments of feature vectors, in memory or on the device of training."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dgbench.data.datasets.features import FeatureTable
from dgbench.data.datasets.splits import Subsets
from dgbench.data.datasets.table_environments import TableEnvironments
from dgbench.data.description import DatasetInfo, Preprocessing


class FeatureEnvironments(TableEnvironments):
    """Environments whose images are vectors (d,), used as they are.

    Nothing is standardized here: statistics of all rows would show a run its held-out environment. The featurizers for
    vectors normalize by what they train on, see :mod:`dgbench.networks.vectors`.

    Args:
        info: the dataset.
        subsets: which rows each environment trains on, validates and tests on.
        table: the rows.
    """

    table: FeatureTable

    def __init__(self, info: DatasetInfo, subsets: Subsets, table: FeatureTable) -> None:
        super().__init__(info, table, subsets)
        self.features, self.labels = torch.from_numpy(table.features), torch.from_numpy(table.label)

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(self.image, (), (), pictures=False)

    def image_names(self, positions: np.ndarray) -> list[str]:
        """Numbers of the rows in the file, from 0."""
        return [str(row) for row in self.table.rows[positions].tolist()]

    def to(self, device: torch.device) -> None:
        self.features, self.labels = self.features.to(device), self.labels.to(device)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(n,) positions -> (n, d) float features and (n,) int64 labels."""
        rows = indices.to(self.features.device)
        return self.features[rows].to(torch.get_default_dtype()), self.labels[rows]

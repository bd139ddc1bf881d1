"""Environments of the rows of a table: image files, or vectors of features."""

from __future__ import annotations

import numpy as np

from dgbench.data.datasets.split_environments import SplitEnvironments
from dgbench.data.datasets.splits import LabeledRows, Subsets
from dgbench.data.description import DatasetInfo


class TableEnvironments(SplitEnvironments):
    """Environments that a table names.

    Each environment is split once, from ``split_seed`` alone: ``val_fraction`` of its rows are ``val`` (DomainBed's
    out-split), the rest is ``train`` (its in-split). Where a list names rows of an environment ``test``, train and val
    are drawn from the others (or are what the list says). What is recorded of them: see :class:`SplitEnvironments`.

    Args:
        info: the dataset.
        table: the images, or features.
        subsets: which of them each environment trains on, validates and tests on.
    """

    def __init__(self, info: DatasetInfo, table: LabeledRows, subsets: Subsets) -> None:
        self.info, self.table, self.subsets = info, table, subsets
        self.given, self.n_classes, self.image = list(info.given), info.n_classes, info.image

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.table.classes)

    def image_attributes(self, positions: np.ndarray) -> dict[str, list[str]]:
        chosen = positions.tolist()
        return {name: [values[position] for position in chosen] for name, values in self.table.attributes.items()}

    def labels_at(self, indices: np.ndarray) -> np.ndarray:
        labels: np.ndarray = self.table.label[indices]
        return labels

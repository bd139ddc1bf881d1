"""Environments that a table names, each split once into images to train on, to validate on and to test on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dgbench.data.datasets.image_split import LabeledRows, Subsets
from dgbench.data.description import DatasetInfo
from dgbench.data.environments import Environments, EvalSet
from dgbench.tensors import ErrorRecipe


class SplitEnvironments(Environments):
    """Environments of the rows of a table, image files or vectors of features.

    Each environment is split once, from ``split_seed`` alone: ``val_fraction`` of its images are ``val`` (DomainBed's
    out-split), the rest is ``train`` (its in-split). Rows follow DomainBed:

    - ``val``, every environment: the out-split, always with plain transforms. (DomainBed scores the out-splits of
      training environments on augmented images; SWAD and later work do not.) Oracle selection reads those of
      held-out environments.
    - ``test``, environments that a run never trained on: the in-split. Environments it trained on have no ``test``
      row, since no images of theirs are left.
    - ``train``, environments that it trained on: the in-split, with plain transforms.

    Where a list names images of an environment ``test``, these are its ``test`` subset in every fold, also where the
    run trained on that environment, and train and val are drawn from the others (or are what the list says).

    Args:
        info: the dataset.
        table: the images, or features.
        subsets: which of them each environment trains on, validates and tests on.
    """

    beyond = False

    def __init__(self, info: DatasetInfo, table: LabeledRows, subsets: Subsets) -> None:
        self.info, self.table, self.subsets = info, table, subsets
        self.given, self.n_classes, self.image = list(info.given), info.n_classes, info.image

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.table.classes)

    def image_attributes(self, positions: np.ndarray) -> dict[str, list[str]]:
        chosen = positions.tolist()
        return {name: [values[position] for position in chosen] for name, values in self.table.attributes.items()}

    def subset(self, env: str, name: str) -> np.ndarray:
        return self.subsets[env, name]

    def labels_at(self, indices: np.ndarray) -> np.ndarray:
        labels: np.ndarray = self.table.label[indices]
        return labels

    def error_recipes(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[ErrorRecipe]:
        found = []
        for subset in subsets:
            for env in self.given:
                name = self._judged(env, subset, env in training)
                if name:
                    found.append(ErrorRecipe(env, subset, {f"{name}/{env}": 1.0}))
        return found

    def _judged(self, env: str, subset: str, trained_on: bool) -> str | None:
        """Which images are the ``subset`` of an environment to a run; None where there are none."""
        if subset == "test":
            listed = len(self.subsets[env, "test"]) > 0
            return "test" if listed else None if trained_on else "train"
        return None if subset == "train" and not trained_on else subset

    def eval_sets(self, names: Sequence[str]) -> dict[str, EvalSet]:
        found = {}
        for name in names:
            subset, _, env = name.partition("/")
            found[name] = EvalSet(torch.from_numpy(self.subsets[env, subset]))
        return found

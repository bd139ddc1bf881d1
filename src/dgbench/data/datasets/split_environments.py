"""Environments whose images are theirs alone, each split once into train, val and test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dgbench.data.datasets.splits import Subsets
from dgbench.data.environments import Environments, EvalSet
from dgbench.tensors import ErrorRecipe


class SplitEnvironments(Environments):
    """The rows of DomainBed, for any environments that are split once and do not share images.

    - ``val``, every environment: the out-split, always with plain transforms. (DomainBed scores the out-splits of
      training environments on augmented images; SWAD and later work do not.) Oracle selection reads those of
      held-out environments.
    - ``test``, environments that a run never trained on: the in-split. Environments it trained on have no ``test``
      row, since no images of theirs are left.
    - ``train``, environments that it trained on: the in-split, with plain transforms.

    Where images of an environment are listed as ``test``, these are its ``test`` subset in every fold, also where the
    run trained on that environment. A subset without images gives no rows.

    Attributes:
        subsets: which images each environment trains on, validates and tests on.
    """

    beyond = False
    subsets: Subsets

    def subset(self, env: str, name: str) -> np.ndarray:
        return self.subsets[env, name]

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
        name = None if subset == "train" and not trained_on else subset
        if subset == "test" and not len(self.subsets[env, "test"]):
            name = None if trained_on else "train"
        return name if name and len(self.subsets[env, name]) else None

    def eval_sets(self, names: Sequence[str]) -> dict[str, EvalSet]:
        found = {}
        for name in names:
            subset, _, env = name.partition("/")
            found[name] = EvalSet(torch.from_numpy(self.subsets[env, subset]))
        return found

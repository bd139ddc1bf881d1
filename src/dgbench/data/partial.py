"""Environments of which a model trains on some classes and is tested on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from dgbench.batches import ErrorRecipe
from dgbench.data.environments import Environments, EvalSet, Table
from dgbench.errors import DataError
from dgbench.seeding import derive

#: class -> how many of its images count, None for all; a class that is absent takes no part
Part = Mapping[int, int | None]


def partial(
    whole: Environments, training: Mapping[str, Part], tested: Mapping[str, Part]
) -> Environments:
    """Restrict environments to some of their classes, and classes to a limited number of images.

    Limits hold for ``train`` and ``test``, drawn by ``split_seed``, environment, subset and class;
    ``val`` has none.

    Args:
        whole: the environments.
        training: environment -> classes of its ``train`` and ``val`` subsets.
        tested: environment -> classes of its ``test`` subset.
    """
    return replace(whole, table=PartialTable(whole.table, whole.catalog.labels, training, tested))


class PartialTable(Table):
    """Some of the images of a table.

    Args:
        whole: the table.
        labels: of its images, by position.
        training, tested: see :func:`partial`.

    Raises:
        DataError: nothing is left of a subset that is trained on or scored.
    """

    def __init__(
        self,
        whole: Table,
        labels: np.ndarray,
        training: Mapping[str, Part],
        tested: Mapping[str, Part],
    ) -> None:
        super().__init__(whole.info, {})
        self.whole = whole
        self.labels = labels
        self.training = training
        self.tested = tested

    @property
    def n_images(self) -> int:
        return self.whole.n_images

    def subset(self, env: str, name: str) -> np.ndarray:
        positions = self.whole.subset(env, name)
        members: np.ndarray = positions[self._members(positions, env, name)]
        return members

    def error_recipes(
        self,
        everywhere: bool,
        subsets: Sequence[str],
        training: Sequence[str] = (),
        grouped: bool = False,
    ) -> list[ErrorRecipe]:
        recipes = []
        for subset in subsets:
            # the classes tested in an environment were never trained on there, so it is tested as
            # one held out
            held_out = subset == "test"
            trained_on = [] if held_out else list(self.training)
            for score in self.whole.error_recipes(False, [subset], trained_on, grouped):
                if score.env not in self._classes(subset):
                    continue
                place = f"{subset}/{score.env}"
                mixture = {f"{name}@{place}": share for name, share in score.mixture.items()}
                recipes.append(ErrorRecipe(score.env, subset, mixture, held_out=held_out))
        for recipe in recipes:
            for name in recipe.mixture:
                self.eval_set(name)  # an empty one is refused now
        return recipes

    def eval_set(self, name: str) -> EvalSet:
        base, _, place = name.rpartition("@")
        subset, _, env = place.partition("/")
        scored = self.whole.eval_set(base)
        return scored.at(torch.from_numpy(self._members(scored.indices.numpy(), env, subset)))

    def _classes(self, subset: str) -> Mapping[str, Part]:
        return self.tested if subset == "test" else self.training

    def _members(self, positions: np.ndarray, env: str, subset: str) -> np.ndarray:
        """Return the ascending indices into ``positions`` of the images that take part."""
        labels = self.labels[positions]
        chosen = np.zeros(len(positions), dtype=bool)
        for label, limit in self._classes(subset)[env].items():
            members = np.flatnonzero(labels == label)
            if limit is not None and subset != "val" and limit < len(members):
                seed = derive(self.info.split_seed, "part", env, subset, label)
                members = np.random.default_rng(seed).permutation(members)[:limit]
            chosen[members] = True
        if not chosen.any():
            classes = ", ".join(map(str, self._classes(subset)[env]))
            raise DataError(
                f"environment {env} has no {subset} image of class {classes}; choose another "
                "protocol.seed, or drop the environment"
            )
        return np.flatnonzero(chosen)

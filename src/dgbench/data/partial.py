"""Environments of which a model trains on some classes and is tested on others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.data.environments import Environments, EvalSet
from dgbench.errors import DataError
from dgbench.seeding import derive
from dgbench.tensors import ErrorRecipe

#: class -> how many of its images count, None for all; a class that is absent takes no part
Part = Mapping[int, int | None]


class PartialEnvironments(Environments):
    """A view of other environments. Which images a limit keeps depends on ``split_seed`` and the environment alone.

    Limits hold for ``train`` and ``test``; ``val`` keeps every image of the training classes.

    Args:
        whole: the environments.
        training: environment -> classes of its ``train`` and ``val`` subsets.
        tested: environment -> classes of its ``test`` subset.

    Raises:
        DataError: nothing is left of a subset that is trained on or scored.
    """

    def __init__(self, whole: Environments, training: Mapping[str, Part], tested: Mapping[str, Part]) -> None:
        self.whole, self.training, self.tested = whole, training, tested
        self.given, self.image, self.n_classes = whole.given, whole.image, whole.n_classes
        self.beyond = whole.beyond

    @property
    def info(self) -> DatasetInfo:  # type: ignore[override]
        return self.whole.info

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.whole.class_names

    @property
    def preprocessing(self) -> Preprocessing:
        return self.whole.preprocessing

    def image_names(self, positions: np.ndarray) -> list[str]:
        return self.whole.image_names(positions)

    def image_attributes(self, positions: np.ndarray) -> dict[str, list[str]]:
        return self.whole.image_attributes(positions)

    def identity(self) -> dict[str, Any]:
        return self.whole.identity()

    def to(self, device: torch.device) -> None:
        self.whole.to(device)

    def labels_at(self, indices: np.ndarray) -> np.ndarray:
        return self.whole.labels_at(indices)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.whole.gather(indices, feature)

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return self.whole.training_noise(rng, n)

    def gather_for_training(self, indices: Tensor, noise: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor]:
        return self.whole.gather_for_training(indices, noise)

    def expect(self, coming: Iterable[Tensor]) -> None:
        self.whole.expect(coming)

    def subset(self, env: str, name: str) -> np.ndarray:
        positions = self.whole.subset(env, name)
        kept: np.ndarray = positions[self._kept(positions, env, name)]
        return kept

    def error_recipes(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[ErrorRecipe]:
        found = []
        for subset in subsets:
            # the classes tested in an environment were never trained on there, so it is tested as one held out
            trained_on = [] if subset == "test" else list(self.training)
            for score in self.whole.error_recipes(False, [subset], trained_on, grouped):
                if score.env in self._classes(subset):
                    mixture = {f"{name}@{subset}/{score.env}": w for name, w in score.mixture.items()}
                    found.append(ErrorRecipe(score.env, subset, mixture, held_out=subset == "test"))
        self.eval_sets([name for score in found for name in score.mixture])  # an empty one is refused now
        return found

    def eval_sets(self, names: Sequence[str]) -> dict[str, EvalSet]:
        return {name: self._eval_set(name) for name in names}

    def _eval_set(self, name: str) -> EvalSet:
        base, _, place = name.rpartition("@")
        subset, _, env = place.partition("/")
        scored = self.whole.eval_sets([base])[base]
        kept = torch.from_numpy(self._kept(scored.indices.cpu().numpy(), env, subset)).to(scored.indices.device)
        return EvalSet(scored.indices[kept], None if scored.feature is None else scored.feature[kept])

    def _classes(self, subset: str) -> Mapping[str, Part]:
        return self.tested if subset == "test" else self.training

    def _kept(self, positions: np.ndarray, env: str, subset: str) -> np.ndarray:
        """Which of a subset's positions take part, in their order."""
        labels = self.labels_at(positions)
        kept = np.zeros(len(positions), dtype=bool)
        for label, limit in self._classes(subset)[env].items():
            own = np.flatnonzero(labels == label)
            if limit is not None and subset != "val" and limit < len(own):
                rng = np.random.default_rng(derive(self.identity()["split_seed"], "part", env, subset, label))
                own = rng.permutation(own)[:limit]
            kept[own] = True
        if not kept.any():
            classes = ", ".join(map(str, self._classes(subset)[env]))
            raise DataError(
                f"environment {env} has no {subset} image of class {classes}; choose another protocol.seed, or drop "
                "the environment"
            )
        return np.flatnonzero(kept)

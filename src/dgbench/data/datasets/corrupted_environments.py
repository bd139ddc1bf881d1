"""Environments made from others by corrupting their images: PACS-corrupted, VLCS-corrupted, and any folder's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np
import torch
from torch import Tensor

from dgbench.batches import ErrorRecipe
from dgbench.data.datasets.corrupted_plan import CorruptedPlan
from dgbench.data.datasets.folder_environments import FolderEnvironments
from dgbench.data.description import DatasetInfo
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.preprocessing import Preprocessing
from dgbench.data.store.corrupted_store import CorruptedStore


class CorruptedEnvironments(Environments):
    """Every domain of a dataset, clean and under each corruption (Hwang et al., 2024, section 4.3).

    Environments are ``photo``, ``photo+gaussian_noise``, ...: with four domains and all 15 corruptions, 64. The given
    ones are drawn, k corruptions for each domain, by ``data_seed`` alone, or listed. The paper draws anew for each of
    its seeds and reports each apart (Tables 3, 4), so one seed of it is one ``data_seed`` with the same ``seed``. A
    domain's corruptions are the first k of one permutation: for one ``data_seed``, 2-2-2-2 contains 1-1-1-1, and
    1-0-1-1 is 1-1-1-1 without the second domain.

    The paper does not say which images an environment holds. Here, as in :class:`SpuriousEnvironments`, no image that
    is trained on judges anything: ``pool_fraction`` of each domain's images (by ``split_seed``, so that all given sets
    are judged on the same ones) form a pool, which under its 16 forms is the ``test`` subset of the domain's 16
    environments. The domain's other images are dealt to its given environments (by ``data_seed``), so none is in two
    of them, and split into ``train`` and ``val`` (by ``split_seed``). Subsets that a list of images names are not used.

    Images are corrupted once, after they are resized, with random numbers of ``corruption_seed``.

    Args:
        info: the dataset.
        base: the clean images, and how they become a network's input.
        plan: environments, and which images go where.
        store: the corrupted images, section by section as planned.
    """

    def __init__(self, info: DatasetInfo, base: FolderEnvironments, plan: CorruptedPlan, store: CorruptedStore) -> None:
        self.info, self.store = info, store
        self.given, self.everywhere = list(info.given), list(info.everywhere)
        self.image, self.n_classes = base.image, base.n_classes
        self._subsets = {(env, "test"): store.span(f"{env}-pool") for env in self.everywhere}
        for env, n_train in plan.n_train.items():
            span = store.span(f"{env}-dealt")
            self._subsets[env, "train"], self._subsets[env, "val"] = span[:n_train], span[n_train:]
        self._pixels = copy(base)  # its way from uint8 to a network's input, over the corrupted images
        self._pixels.store, self._pixels.labels = store, base.labels[store.positions]
        self._pixels.plain = base.plain[store.positions]

    @property
    def class_names(self) -> tuple[str, ...]:
        return self._pixels.class_names

    @property
    def preprocessing(self) -> Preprocessing:
        return self._pixels.preprocessing

    def image_names(self, positions: np.ndarray) -> list[str]:
        """Paths of the clean images."""
        return self._pixels.image_names(self.store.positions.numpy()[positions])

    def image_attributes(self, positions: np.ndarray) -> dict[str, list[str]]:
        """Those of the clean images."""
        return self._pixels.image_attributes(self.store.positions.numpy()[positions])

    def to(self, device: torch.device) -> None:
        self._pixels.to(device)

    def subset(self, env: str, name: str) -> np.ndarray:
        return self._subsets[env, name]

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._pixels.gather(indices)

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return self._pixels.training_noise(rng, n)

    def gather_for_training(self, indices: Tensor, noise: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor]:
        return self._pixels.gather_for_training(indices, noise)

    def error_recipes(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[ErrorRecipe]:
        found = []
        for subset in subsets:
            for env in self.everywhere if subset == "test" and everywhere else self.given:
                found.append(ErrorRecipe(env, subset, {f"{subset}/{env}": 1.0}))
        return found

    def eval_sets(self, names: Sequence[str]) -> dict[str, EvalSet]:
        asked = {name: name.split("/", 1) for name in names}
        self.store.prepare(f"{env}-{'pool' if subset == 'test' else 'dealt'}" for subset, env in asked.values())
        return {name: EvalSet(torch.from_numpy(self._subsets[env, subset])) for name, (subset, env) in asked.items()}

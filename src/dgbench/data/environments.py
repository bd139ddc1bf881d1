"""What every dataset offers to training: named environments over images that live on the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.data.description import DatasetInfo, Preprocessing
from dgbench.tensors import ErrorRecipe, EvalBatch

LABEL_CHUNK = 256  # images gathered at once for their labels


@dataclass(frozen=True)
class EvalSet:
    """Images that are evaluated once.

    Args:
        indices: (n,) positions in the store.
        feature: (n,) spurious feature to paint instead of the images' own, or None.
    """

    indices: Tensor
    feature: Tensor | None = None


class Environments(ABC):
    """Named environments.

    Attributes:
        info: the dataset in names and numbers.
        given: names of the environments a researcher has, in order.
        image: shape of what the network sees: C, H, W, d of vectors, or that of cached features.
        n_classes: K.
        beyond: whether there are environments besides the given ones, in which a model of all given ones is judged.
    """

    beyond: bool = True

    info: DatasetInfo
    given: list[str]
    image: tuple[int, ...]
    n_classes: int

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the K classes, in the order of the labels."""
        return tuple(map(str, range(self.n_classes)))

    @property
    def n_images(self) -> int:
        """Every position of a given image is below it."""
        subsets = (self.subset(env, name) for env in self.given for name in ("train", "val"))
        return 1 + max(int(subset.max()) for subset in subsets if len(subset))

    @property
    def preprocessing(self) -> Preprocessing:
        """How the images that :meth:`gather` gives were made of pictures; here, values in [0, 1]."""
        channels, height, width = self.image
        return Preprocessing((channels, height, width), (0.0,) * channels, (1.0,) * channels, pictures=channels == 3)

    def image_names(self, positions: np.ndarray) -> list[str]:
        """(n,) positions -> names of the images: their paths, where they lie in files of their own."""
        return [str(position) for position in positions.tolist()]

    def image_attributes(self, positions: np.ndarray) -> dict[str, list[str]]:
        """(n,) positions -> what else the dataset says of its images: name -> n values; empty where it says nothing."""
        return {}

    def identity(self) -> dict[str, Any]:
        """What a row says of the dataset: ``dataset variant base evaluation data_seed split_seed given``."""
        return self.info.identity()

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move the images to a device, once."""

    @abstractmethod
    def subset(self, env: str, name: str) -> np.ndarray:
        """Positions in the store of the ``train`` or ``val`` subset of a given environment."""

    @abstractmethod
    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(n,) positions -> (n, C, H, W) float images and (n,) int64 labels, on the device of the store."""

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        """Random numbers that :meth:`gather_for_training` needs for n images, by name; each has n rows.

        Drawn for each environment and step alone, so that an image is augmented alike in every fold and after a resume.
        """
        return {}

    def gather_for_training(self, indices: Tensor, noise: Mapping[str, np.ndarray]) -> tuple[Tensor, Tensor]:
        """As :meth:`gather`, with augmentation by the given random numbers; the same for any batching of the n."""
        return self.gather(indices)

    def labels_at(self, indices: np.ndarray) -> np.ndarray:
        """(n,) positions -> (n,) labels; overridden where labels are at hand without their images."""
        parts = np.split(indices, range(LABEL_CHUNK, len(indices), LABEL_CHUNK))
        return np.concatenate([self.gather(torch.from_numpy(part))[1].cpu().numpy() for part in parts])

    def expect(self, coming: Iterable[Tensor]) -> None:  # noqa: B027
        """A hint: these positions will be gathered next, one after the other. For stores that must fetch them."""

    @abstractmethod
    def error_recipes(
        self, everywhere: bool, subsets: Sequence[str], training: Sequence[str] = (), grouped: bool = False
    ) -> list[ErrorRecipe]:
        """Errors to record at an evaluation.

        Args:
            everywhere: in all environments, or in the given ones only.
            subsets: which of ``train``, ``val`` and ``test``.
            training: environments that the run trains on; they may lack a ``test`` subset.
            grouped: predictions depend on what else is scored, so no eval set may show what its environment would not.
        """

    @abstractmethod
    def eval_sets(self, names: Sequence[str]) -> Mapping[str, EvalSet]:
        """The eval sets that mixtures of :meth:`error_recipes` name."""


class EvalSetLoader:
    """Batches of one eval set, in order, gathered on the device.

    Args:
        environments: the store.
        name: of the eval set.
        scored: its images.
        batch_size: images per batch.
        part: number of this process and how many there are; they take turns.
        wanted: whether the eval set of that name is evaluated this time.
    """

    def __init__(
        self,
        environments: Environments,
        name: str,
        scored: EvalSet,
        batch_size: int,
        part: tuple[int, int] = (0, 1),
        wanted: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self.environments, self.name, self.scored, self.batch_size = environments, name, scored, batch_size
        self.wanted = wanted
        first, count = part
        self._numbers = range(first, -(-len(scored.indices) // batch_size), count)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[EvalBatch]:
        if not self.wanted(self.name):
            return
        slices = [slice(n * self.batch_size, (n + 1) * self.batch_size) for n in self._numbers]
        self.environments.expect(self.scored.indices[part] for part in slices)
        for number, part in zip(self._numbers, slices, strict=True):
            feature = None if self.scored.feature is None else self.scored.feature[part]
            positions = self.scored.indices[part]
            x, y = self.environments.gather(positions, feature)
            yield EvalBatch(x, y, self.name, number, positions)

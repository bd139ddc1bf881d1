"""What every dataset offers to training.

A table of environments, a catalog of images, and a store of their pixels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dgbench.batches import ErrorRecipe
from dgbench.data.description import DatasetInfo, Preprocessing

NO_IMAGES = np.empty(0, np.int64)


@dataclass(frozen=True)
class EvalSet:
    """Images that are evaluated once."""

    indices: Tensor  #: (n,) positions in the store
    #: (n,) spurious feature to paint instead of the images' own, or None
    feature: Tensor | None = None
    #: (n,) numbers that tell which pictures other eval sets show too, as in ``EvalBatch``
    pictures: Tensor | None = None

    def at(self, rows: Tensor | slice) -> EvalSet:
        """Select some of the images, in the order of ``rows``."""
        feature = None if self.feature is None else self.feature[rows]
        pictures = None if self.pictures is None else self.pictures[rows]
        return EvalSet(self.indices[rows], feature, pictures)


class Table:
    """Which images each environment has, and which of their errors are recorded.

    The rows are those of DomainBed:

    - ``val``, every given environment: the out-split, always with plain transforms. (DomainBed
      scores the out-splits of training environments on augmented images; SWAD and later work do
      not.) Oracle selection reads those of held-out environments.
    - ``test``, environments that a run never trained on: the in-split. Environments it trained on
      have no ``test`` row, since no images of theirs are left. Where images of an environment are
      kept for ``test``, these are its ``test`` subset in every fold, also where the run trained on
      that environment.
    - ``train``, environments that it trained on, or all given ones where a pool of other images
      judges environments beyond them: the in-split, with plain transforms.

    A subset without images gives no rows.

    Args:
        info: the dataset in names and numbers.
        subsets: (environment, ``train``, ``val`` or ``test``) -> (n,) positions in the store.
    """

    def __init__(self, info: DatasetInfo, subsets: Mapping[tuple[str, str], np.ndarray]) -> None:
        self.info = info
        self.subsets = subsets

    @property
    def n_images(self) -> int:
        """A number above every position of an image to train or validate on."""
        largest = []
        for env in self.info.given:
            for name in ("train", "val"):
                subset = self.subset(env, name)
                if len(subset):
                    largest.append(int(subset.max()))
        return 1 + max(largest)

    def subset(self, env: str, name: str) -> np.ndarray:
        """Look up the (n,) positions of an environment's subset, n = 0 if it has none."""
        return self.subsets.get((env, name), NO_IMAGES)

    def error_recipes(
        self,
        everywhere: bool,
        subsets: Sequence[str],
        training: Sequence[str] = (),
        grouped: bool = False,
    ) -> list[ErrorRecipe]:
        """List the errors to record at an evaluation.

        Args:
            everywhere: in all environments, or in the given ones only.
            subsets: which of ``train``, ``val`` and ``test``.
            training: environments that the run trains on; they may lack a ``test`` subset.
            grouped: predictions depend on the images scored together, so each eval set must look
                like its environment.
        """
        recipes = []
        for subset in subsets:
            beyond = everywhere and subset == "test"
            for env in self.info.everywhere if beyond else self.info.given:
                scored = self._scored(env, subset, env in training)
                if scored:
                    recipes.append(ErrorRecipe(env, subset, self._mixture(env, scored, grouped)))
        return recipes

    def eval_set(self, name: str) -> EvalSet:
        """Build the eval set that a mixture of :meth:`error_recipes` names."""
        subset, _, env = name.partition("/")
        return EvalSet(torch.from_numpy(self.subset(env, subset)))

    def _scored(self, env: str, subset: str, trained_on: bool) -> str | None:
        """Choose the subset that is scored as an environment's ``subset``; None if it has none."""
        scored = subset
        if subset == "train" and not (trained_on or self.info.beyond):
            return None
        if subset == "test" and not len(self.subset(env, "test")):
            if trained_on:
                return None
            scored = "train"
        return scored if len(self.subset(env, scored)) else None

    def _mixture(self, env: str, subset: str, grouped: bool) -> Mapping[str, float]:
        """Return the weight of each eval set in the error of a subset."""
        return {f"{subset}/{env}": 1.0}


@dataclass(frozen=True)
class Catalog:
    """What is known of n images besides their pixels."""

    labels: np.ndarray  #: (n,) int64
    classes: tuple[str, ...]  #: names of the K classes, in the order of the labels
    #: how pictures became the images that the dataset's own store gives
    preprocessing: Preprocessing
    #: names of the images: paths if they lie in files of their own; None: their positions
    names: Sequence[object] | None = None
    #: what else the dataset tells about them: name -> n values
    attributes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def names_at(self, positions: np.ndarray) -> list[str]:
        """Map (n,) positions to the names of the images."""
        chosen = positions.tolist()
        if self.names is None:
            return [str(i) for i in chosen]
        return [str(self.names[i]) for i in chosen]

    def attributes_at(self, positions: np.ndarray) -> dict[str, list[str]]:
        """Map (n,) positions to what else is known about the images: name -> n values."""
        chosen = positions.tolist()
        attributes = {}
        for name, values in self.attributes.items():
            attributes[name] = [values[i] for i in chosen]
        return attributes

    def at(self, positions: np.ndarray) -> Catalog:
        """Build the catalog of copies of some images, in the order of ``positions``."""
        names = positions.tolist()
        if self.names is not None:
            names = [self.names[i] for i in names]
        attributes = self.attributes_at(positions)
        return Catalog(self.labels[positions], self.classes, self.preprocessing, names, attributes)


class Store(ABC):
    """Images and labels by position, on the device of training.

    Attributes:
        image: shape of what the network sees: C, H, W, d of vectors, or that of cached features.
    """

    image: tuple[int, ...]

    @abstractmethod
    def to(self, device: torch.device) -> None:
        """Move the images to a device, once."""

    @abstractmethod
    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map (n,) positions to (n, C, H, W) float images and (n,) int64 labels.

        They lie on the device of the store.
        """

    def training_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        """Draw the random numbers that :meth:`gather_for_training` needs for n images, by name.

        Each has n rows.

        Each environment and block of steps has its own ``rng``: images are augmented alike in every
        fold and on resume.
        """
        return {}

    def gather_for_training(
        self, indices: Tensor, noise: Mapping[str, np.ndarray]
    ) -> tuple[Tensor, Tensor]:
        """Gather as :meth:`gather`, augmented by the given random numbers.

        The result is the same however the images are batched.
        """
        return self.gather(indices)

    def expect(self, coming: Iterable[Tensor]) -> None:  # noqa: B027
        """Receive a hint: these positions will be gathered next, one after another.

        For stores that must fetch them.
        """

    def prepare(self, indices: Tensor) -> None:  # noqa: B027
        """Receive a hint: these positions will be gathered some time.

        For stores that make images when first asked.
        """


class TensorStore(Store):
    """Images or vectors in memory, or on the device of training, without augmentation.

    Args:
        values: (n, C, H, W) images or (n, d) vectors.
        labels: (n,) int64.
        peak: value that becomes 1.0.
    """

    def __init__(self, values: Tensor, labels: Tensor, peak: int = 1) -> None:
        self.values = values
        self.labels = labels
        self.peak = peak
        self.image = tuple(values.shape[1:])

    def to(self, device: torch.device) -> None:
        self.values = self.values.to(device)
        self.labels = self.labels.to(device)

    def gather(self, indices: Tensor, feature: Tensor | None = None) -> tuple[Tensor, Tensor]:
        indices = indices.to(self.values.device)
        values = self.values[indices].to(torch.get_default_dtype())
        if self.peak != 1:
            values = values.div_(self.peak)
        return values, self.labels[indices]


@dataclass(frozen=True, eq=False)
class Environments:
    """Named environments: which images each has, what is known of the images, and their pixels."""

    table: Table  #: environment and subset -> positions in the store
    catalog: Catalog  #: of the images
    store: Store  #: of their pixels, or of features in their place

    @property
    def info(self) -> DatasetInfo:
        """The dataset in names and numbers."""
        return self.table.info

    def eval_sets(self, names: Sequence[str]) -> dict[str, EvalSet]:
        """Build the eval sets that mixtures of errors name; prepare the store to gather them."""
        sets = {name: self.table.eval_set(name) for name in names}
        if sets:
            self.store.prepare(torch.cat([scored.indices for scored in sets.values()]))
        return sets

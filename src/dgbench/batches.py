"""What the layers hand to each other: named tensors and batches.

Shape legend (used everywhere): R runs, E training environments, B images per environment and step,
N = sum of the environments' minibatch sizes, K classes, m features, C x H x W image.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]


@dataclass  # not frozen: Lightning's precision plugins rebuild batches field by field
class EnvBatch:
    """One minibatch from every training environment, in the order of the environments."""

    x: Tensor  #: (N, C, H, W) images
    y: Tensor  #: (N,) int64 labels
    sizes: tuple[int, ...]  #: minibatch size of each of the E environments; their sum is N
    #: (N,) int64 number of each row's training image; None if images have no numbers
    index: Tensor | None = None
    #: (E,) int64 numbers of the environments among all that the run trains on, in ascending order,
    #: if the step drew some (``trainer.environments_per_step``); None if it has all
    drawn: Tensor | None = None

    @cached_property
    def env(self) -> Tensor:
        """(N,) position of each row's environment among the training environments."""
        # no repeat_interleave: the length of its result would have to be read back from the device
        device = self.x.device
        parts = [torch.full((size,), e, device=device) for e, size in enumerate(self.sizes)]
        return torch.cat(parts)

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Cut a tensor of N rows into one tensor per environment."""
        return torch.split(values, list(self.sizes))

    def mean_per_env(self, values: Tensor) -> Tensor:
        """Average (N,) values within each environment: (E,) means."""
        if len(set(self.sizes)) == 1:
            return values.view(len(self.sizes), -1).mean(1)
        return torch.stack([part.mean() for part in self.split(values)])


@dataclass(frozen=True)
class TrainingImages:
    """Images that one run trains on, as they are evaluated."""

    x: Tensor  #: (n, C, H, W) images
    y: Tensor  #: (n,) int64 labels
    env: Tensor  #: (n,) int64 positions of their environments among the training environments
    index: Tensor  #: (n,) int64 numbers of the images


@dataclass
class EvalBatch:
    """Images to evaluate, of one eval set."""

    x: Tensor  #: (n, C, H, W) images
    y: Tensor  #: (n,) int64 labels
    name: str  #: the eval set they belong to
    index: int  #: number of the batch within the eval set
    #: (n,) int64 positions of the images in their store; None if they come from none
    positions: Tensor | None = None
    #: (n,) int64 numbers of pictures that several eval sets show, the same one in each; None if one
    #: alone shows them
    pictures: Tensor | None = None


@dataclass(frozen=True)
class ErrorRecipe:
    """The error of one subset of one environment as a mixture of eval sets."""

    env: str  #: name of the environment
    subset: str  #: ``train``, ``val`` or ``test``
    #: weight of each eval set; weights sum to 1. A sampled error is one eval set of weight 1; an
    #: exact error mixes eval sets with the probabilities that define the environment.
    mixture: Mapping[str, float]
    #: whether the run never trained on what is scored; None if all of the environment was held out,
    #: or none of it, as the run's identity says
    held_out: bool | None = None
    #: how many of the scored images a classifier gets wrong that always predicts the most frequent
    #: class of the images that the run trains on; None if it is not known
    majority_wrong: float | None = None

    def never_trained_on(self, training: Collection[str]) -> bool:
        """Return whether a run with these training environments never trained on what is scored."""
        if self.held_out is None:
            return self.env not in training
        return self.held_out

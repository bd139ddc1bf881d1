"""What classifiers of shift are asked for: how they train, on which images, and what they gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgbench.estimation.classifiers import ShiftClassifier
from dgbench.records.spec import digest

EARLY = 100  # steps
LOOKS_MORE = 5


@dataclass(frozen=True)
class Recipe:
    """How a classifier is trained.

    Args:
        algorithm: what it is.
        hparams: of the algorithm.
        steps: optimizer steps.
        batch_size: images of each side and step.
        look_every: steps between two looks at the validation images; in the first :data:`EARLY` steps, where small
            samples are best, a fifth of it.
        chooses: ``loss`` or ``error``: the step with the lowest on the validation images counts; None: the last.
        mean_from: the mean of the weights after every later step counts; None: it does not.
        epochs: draw minibatches without replacement, epoch by epoch; otherwise uniformly with replacement.
    """

    algorithm: type[ShiftClassifier]
    hparams: Mapping[str, Any]
    steps: int
    batch_size: int
    look_every: int
    chooses: str | None = None
    mean_from: int | None = None
    epochs: bool = False

    @property
    def interval(self) -> int:
        """Steps after which training pauses."""
        return max(1, self.look_every // LOOKS_MORE)

    def looks(self, step: int) -> bool:
        """Whether the validation images are looked at after this step."""
        return step <= EARLY or step % self.look_every == 0 or step >= self.steps

    @property
    def key(self) -> str:
        """Equal for recipes that are."""
        return digest({**vars(self), "algorithm": self.algorithm.__name__})


@dataclass(frozen=True)
class Labeled:
    """Images of one side with labels.

    Args:
        positions: (n,) in the source of images.
        labels: (n,) int64 in 0..K-1.
    """

    positions: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Fitting:
    """One classifier to train.

    Args:
        recipe: how.
        n_classes: K.
        sides: images that it trains on, of p and of q (or of one side alone).
        validation: images that choose the step, by side.
        predicted: (n,) positions of images whose outputs are wanted.
        seed: of its weights and minibatches.
    """

    recipe: Recipe
    n_classes: int
    sides: tuple[Labeled, ...]
    validation: tuple[Labeled, ...]
    predicted: np.ndarray
    seed: int


@dataclass(frozen=True)
class Fitted:
    """A classifier that was trained.

    Args:
        outputs: (n, c) float64, of the images that were asked for.
        loss, error: on the validation images, mean cross entropy and fraction wrong.
        step: that counts.
        seconds: its share of those of its stack.
        together: classifiers of its stack.
    """

    outputs: np.ndarray
    loss: float
    error: float
    step: int
    seconds: float
    together: int

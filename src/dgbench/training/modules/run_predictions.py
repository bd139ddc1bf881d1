"""What training modules predict: errors counted batch by batch, and logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.batches import Tensors, TrainingImages
from dgbench.containers import AnyNetworks
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Hyperparameters
from dgbench.training.activations import images_at_once
from dgbench.training.modules.inputs import eval_batch
from dgbench.training.modules.one_run import OneRun

TrainingImagesOf = Callable[[int], Iterable[TrainingImages]]  # number of a run -> batches of its training images


class PredictingModule(pl.LightningModule, ABC):
    """Predicts with R runs of one algorithm.

    Attributes:
        algorithm: that of the first run; of the others it differs in hyperparameters that are not static.
        gives_logits: whether validation steps also return ``logits``; not part of a state.
        training_images: the training images of each run, for algorithms with surveys; not part of a state.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.algorithm = algorithm
        self.gives_logits = False
        self.training_images: TrainingImagesOf | None = None

    @property
    @abstractmethod
    def runs(self) -> Sequence[OneRun]:
        """The R runs."""

    @abstractmethod
    def evaluated(self, i: int) -> tuple[AnyNetworks, Hyperparameters, Tensors]:
        """Networks in evaluation mode, hyperparameters and memory of run ``i``, as they are now."""

    @abstractmethod
    def remember(self, i: int, state: Tensors) -> None:
        """Put in new values of the memory of run ``i``."""

    @property
    def size(self) -> int:
        """R."""
        return len(self.runs)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> dict[str, Tensor]:
        """Count what is wrong in one batch.

        Args:
            batch: an :class:`~dgbench.batches.EvalBatch`, or (x, y).

        Returns:
            ``seen``, 0-dimensional; ``wrong`` (R,); ``loss`` (R,) float64, the summed cross entropy; where
            ``gives_logits`` is set, ``logits`` (R, n, K).
        """
        images = eval_batch(batch, batch_idx)
        logits, n = self.predict_logits(images.x, images.name, images.index), len(images.y)
        wrong = (logits.argmax(2) != images.y).sum(1)
        each = F.cross_entropy(logits.flatten(0, 1), images.y.repeat(self.size), reduction="none")
        if images is not batch:
            self.log("val/error", wrong.double().mean() / n, batch_size=n, on_epoch=True)
        counts = {"seen": torch.tensor(n), "wrong": wrong, "loss": each.view(self.size, n).double().sum(1)}
        return {**counts, "logits": logits} if self.gives_logits else counts

    def predict_logits(self, x: Tensor, *purpose: str | int) -> Tensor:
        """(n, C, H, W) -> (R, n, K); ``purpose`` names the batch, on which random predictions depend."""
        random = self._random_for_prediction(x, *purpose)
        parts = [
            self._predict(x[rows], {name: values[:, rows] for name, values in random.items()})
            for rows in self._together(x)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _random_for_prediction(self, x: Tensor, *purpose: str | int) -> Tensors:
        """(R, n, ...) each."""
        like = x.new_empty((), dtype=self.runs[0].networks.dtype)
        drawn = [run.draws.for_prediction(len(x), like, *purpose) for run in self.runs]
        return {name: torch.stack([own[name] for own in drawn]) for name in drawn[0]}

    @abstractmethod
    def _predict(self, x: Tensor, random: Tensors) -> Tensor:
        """(n, C, H, W) and (R, n, ...) random inputs -> (R, n, K)."""

    def images_at_once(self, x: Tensor) -> int:
        """Images like those of ``x`` that are predicted at once, so that no layer puts out too much."""
        channels, *sides = x.shape[1:]
        layers = self.runs[0].activations((channels + self.algorithm.extra_channels, *sides))
        return images_at_once(layers, x.device)

    def _together(self, x: Tensor) -> list[slice]:
        """The rows of a batch, cut into what one call of the algorithm's ``predict`` gets."""
        n = len(x)
        size = n if self.algorithm.group_size(self.algorithm.values) else self.images_at_once(x)
        return [slice(first, min(first + size, n)) for first in range(0, n, size)]

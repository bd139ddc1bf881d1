"""The LightningModules of runs: what a ``pl.Trainer`` calls, around modules that need no trainer.

Whoever builds, counts or judges a run without training it uses :class:`SteppedRun`, since importing
Lightning takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from dgbench.batches import EnvBatch, EvalBatch
from dgbench.objectives.contract import Algorithm
from dgbench.training.modules.base import RunModule, minibatches
from dgbench.training.modules.single import SteppedRun
from dgbench.training.optimizers import UpdateRule


class LightningRuns(RunModule, pl.LightningModule):
    """Trains R runs in a ``pl.Trainer``."""

    device = pl.LightningModule.device  # that the trainer chose

    def __init__(self, algorithm: Algorithm, rule: UpdateRule) -> None:
        super().__init__(algorithm, rule)
        self.automatic_optimization = False

    @property
    def _scaler(self) -> Any:
        if self._trainer is None:
            return None
        return getattr(self._trainer.precision_plugin, "scaler", None)

    def on_fit_start(self) -> None:
        """Load the optimizers' states."""
        self.load_optimizers()

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Take one optimizer step per minibatch; ``batch`` is what :func:`minibatches` takes.

        Raises:
            DivergedError: a loss of every run was NaN or infinite.
        """
        configured = self.optimizers()
        optimizers = configured if isinstance(configured, list) else [configured]
        by_group = dict(zip(self._optimizers, optimizers, strict=True))
        self.train_steps(minibatches(batch, self.algorithm.sizes.n_envs), by_group)

    def on_validation_epoch_start(self) -> None:
        self.forget_pictures()

    def on_validation_epoch_end(self) -> None:
        self.forget_pictures()

    def validation_step(
        self, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, Tensor]:
        """Count the errors of every run on one batch, which is an :class:`EvalBatch`, or (x, y).

        Returns:
            What :meth:`count_errors` counts.
        """
        if isinstance(batch, EvalBatch):
            return self.count_errors(batch)
        x, y = batch
        counts = self.count_errors(EvalBatch(x, y, "validation", batch_idx))
        error = counts["wrong"].double().mean() / len(y)
        self.log("val/error", error, batch_size=len(y), on_epoch=True)
        return counts


class SingleRun(SteppedRun, LightningRuns):
    """Trains one run in a ``pl.Trainer``, alone or with other processes.

    Arguments are those of :class:`SteppedRun`.
    """

    @property
    def runs(self) -> Sequence[SingleRun]:
        return (self,)

    @property
    def _place(self) -> tuple[int, int]:
        if self._trainer is None:
            return 0, 1
        return self._trainer.global_rank, self._trainer.world_size

    def train_steps(self, batches: Sequence[EnvBatch], optimizers: Mapping[str, Any]) -> Tensor:
        losses = super().train_steps(batches, optimizers)
        if self._trainer is not None and not self.collects:  # else all values are logged together
            self.log("train/loss", losses.mean())
        return losses

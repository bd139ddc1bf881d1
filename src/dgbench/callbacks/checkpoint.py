"""Checkpoints: the last step, to resume from, and the best validation step."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn


class Checkpoints(pl.Callback):
    """Writes ``last.ckpt`` (everything needed to go on) and ``best.ckpt`` (weights at the lowest ``val/error``).

    Both are written at the end of a stretch between evaluations when ``seconds`` have passed, and at the end of
    training, each under another name first, so a file with the final name is always whole. The best goes first: a
    run that dies between the two finds the same best again, since it resumes from an earlier step.

    Args:
        folder: where they go.
        seconds: least time between two writes, 0 for every evaluation.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self._written = time.monotonic()
        self._best_error = float("inf")
        self._best: dict[str, Any] | None = None  # not yet on disk

    @property
    def last(self) -> Path:
        """The checkpoint to resume from."""
        return self.folder / "last.ckpt"

    def state_dict(self) -> dict[str, Any]:
        return {"best_error": self._best_error}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._best_error = state_dict["best_error"]

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if "val/error" not in trainer.callback_metrics:  # an evaluation that leaves no rows
            return
        error = float(trainer.callback_metrics["val/error"])
        if error < self._best_error:
            weights = {name: tensor.detach().cpu().clone() for name, tensor in pl_module.state_dict().items()}
            self._best_error, self._best = error, {"step": int(pl_module.steps_done), "state_dict": weights}
        if trainer.state.fn != TrainerFn.FITTING:  # an evaluation after training, the last word
            self._write_best()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if time.monotonic() - self._written >= self.seconds:
            self._write(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._write(trainer)

    def _write(self, trainer: pl.Trainer) -> None:
        self._write_best()
        partial = self._partial()
        trainer.save_checkpoint(partial)
        os.replace(partial, self.last)
        self._written = time.monotonic()

    def _write_best(self) -> None:
        if self._best is not None:
            partial = self._partial()
            torch.save(self._best, partial)
            os.replace(partial, self.folder / "best.ckpt")
            self._best = None

    def _partial(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / "partial.ckpt"

"""A sign of life in every run folder: ``progress.json``, for ``python report.py report=status``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from dgbench.records.beats import Beat, write_beat

SECONDS = 5.0  # least time between two beats
SHARE = 0.005  # of the time that beats may take, where a stack has very many runs


class Heartbeat(pl.Callback):
    """Writes how far these runs are (:class:`~dgbench.records.beats.Beat`), at most every few seconds.

    The speed includes evaluations. A full disk stops no training.

    Args:
        folders: of the runs that train together.
        steps: optimizer steps of each.
    """

    def __init__(self, folders: Sequence[Path], steps: int) -> None:
        self.folders, self.steps = list(folders), steps
        self._begun = self._beaten = time.monotonic()
        self._pause = SECONDS
        self._first = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._begun, self._first = time.monotonic(), int(pl_module.steps_done)
        self._beat(pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._beat_in_time(pl_module)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._beat_in_time(pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._beat(pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if isinstance(exception, KeyboardInterrupt):  # it stopped with a checkpoint of this step
            self._beat(pl_module)

    def _beat_in_time(self, pl_module: Any) -> None:
        if time.monotonic() - self._beaten >= self._pause:
            self._beat(pl_module)

    def _beat(self, pl_module: Any) -> None:
        now, step = time.monotonic(), int(pl_module.steps_done)
        trained = step - self._first
        speed = round(trained / (now - self._begun), 3) if trained else None
        beat = Beat(step=step, steps=self.steps, steps_per_s=speed, runs=len(self.folders))
        for folder in self.folders:
            with suppress(OSError):
                write_beat(folder, beat)
        self._beaten = time.monotonic()
        self._pause = max(SECONDS, (self._beaten - now) / SHARE)

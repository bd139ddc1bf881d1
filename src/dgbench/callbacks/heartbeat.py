"""A sign of life in every run folder: ``progress.json``, for ``python report.py report=status``."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from dgbench.records import PROGRESS_FILE, write_whole

SECONDS = 5.0  # least time between two beats
SHARE = 0.005  # of the time that beats may take, where a stack has very many members


class Heartbeat(pl.Callback):
    """Writes how far these members are, whole or not at all, at most every few seconds.

    A beat holds ``step`` of ``steps``, ``steps_per_s`` since training began or went on (null before that is known;
    evaluations count), the Unix ``time``, ``pid`` and ``host``, and how many ``members`` train together. A disk that
    is full stops no training.

    Args:
        folders: of the members that train together.
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

    def _beat_in_time(self, pl_module: Any) -> None:
        if time.monotonic() - self._beaten >= self._pause:
            self._beat(pl_module)

    def _beat(self, pl_module: Any) -> None:
        now, step = time.monotonic(), int(pl_module.steps_done)
        trained = step - self._first
        beat = {
            "step": step,
            "steps": self.steps,
            "steps_per_s": round(trained / (now - self._begun), 3) if trained else None,
            "time": round(time.time(), 1),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "members": len(self.folders),
        }
        text = json.dumps(beat) + "\n"
        for folder in self.folders:
            with suppress(OSError):
                write_whole(folder / PROGRESS_FILE, text)
        self._beaten = time.monotonic()
        self._pause = max(SECONDS, (self._beaten - now) / SHARE)

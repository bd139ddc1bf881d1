"""Checkpoints by time: the last state of a group, and each run's weights at its best.

The former is to continue from, the latter are those of the best evaluation.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from dgbench.callbacks.recorder import Recorder
from dgbench.interruption import STOPS, name_of
from dgbench.plan.settings import TrainerSettings
from dgbench.records.files import write_sealed


def _all_weights(_: int, weights: Mapping[str, Tensor]) -> dict[str, Any]:
    return {"state_dict": weights}


@dataclass(eq=False, repr=False)
class Checkpointer(pl.Callback):
    """Saves a group and the ``best.ckpt`` (weights at the lowest ``val`` error) of its runs.

    Both are written when ``checkpoint_seconds`` have passed, between two minibatches or after an
    evaluation, and at the end of training. The best weights go first: a group that dies between the
    two finds the same best again, since it continues from an earlier step.

    Ctrl-C, and the signals by which clusters and service managers ask a process to end, end
    training with a checkpoint: after the minibatches that are being computed, or after the
    evaluation that has begun, which a checkpoint cannot stand before. A second Ctrl-C ends it at
    once.
    """

    save: Callable[[pl.Trainer, Any], None]  #: saves the group
    #: ``best.ckpt`` of each run, in the order of the module; None for a complete one
    best: Sequence[Path | None]
    recorder: Recorder  #: knows which runs improved
    #: ``checkpoint_seconds`` is the least time between two, 0 for every opportunity
    settings: TrainerSettings
    #: what is written of the weights of a run, given its number and them
    content: Callable[[int, Mapping[str, Tensor]], Mapping[str, Any]] = _all_weights
    saved: int = field(default=0, init=False)  #: step of the last checkpoint
    seconds_written: float = field(default=0.0, init=False)  #: what all checkpoints have taken
    _written: float = field(default_factory=time.monotonic, init=False)
    # best weights not on disk yet
    _pending: dict[int, Mapping[str, Any]] = field(default_factory=dict, init=False)
    _stopped_by: str = field(default="", init=False)  # what asked to end; "" while nothing has
    # of signals, as they were before training
    _handlers: dict[int, Any] = field(default_factory=dict, init=False)

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._written = time.monotonic()
        self.saved = pl_module.steps_done
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                is_launchers = signal.getsignal(number) is not signal.SIG_DFL
                if number != signal.SIGUSR1 or not is_launchers:
                    self._handlers[number] = signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, _: object) -> None:
        signal.signal(signal.SIGINT, self._handlers[signal.SIGINT])  # a second one ends it at once
        if not self._stopped_by:
            self._stopped_by = name_of(number)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = pl_module.steps_done
        is_evaluated = step % self.settings.eval_every == 0 or step >= self.settings.steps
        if is_evaluated or trainer.should_stop:
            return  # an evaluation comes first, or it would be left out after a resume
        if self._stopped_by or self._due():
            self.write(trainer, pl_module)
        self._stop_if_interrupted()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        for i in self.recorder.improved:
            if self.best[i] is not None:
                self._pending[i] = {
                    "step": pl_module.steps_done,
                    **self.content(i, pl_module.weights(i)),
                }
        if trainer.state.fn != TrainerFn.FITTING:  # an evaluation after training, the last word
            self._write_best()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._stopped_by or self._due():
            self.write(trainer, pl_module)
        self._stop_if_interrupted()

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self.write(trainer, pl_module)
        self._stop_if_interrupted()

    def teardown(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        self._give_back_signals()

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        # there is no teardown then, and a handler would keep the memory of the group
        self._give_back_signals()

    def _give_back_signals(self) -> None:
        for number, handler in self._handlers.items():
            # Lightning may have put back what was before its own
            if signal.getsignal(number) == self._interrupt:
                signal.signal(number, handler)
        self._handlers = {}

    def _due(self) -> bool:
        return time.monotonic() - self._written >= self.settings.checkpoint_seconds

    def _stop_if_interrupted(self) -> None:
        if self._stopped_by:
            raise KeyboardInterrupt(self._stopped_by)

    def write(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write a checkpoint now, the best weights before it."""
        begun = time.monotonic()
        self._write_best()
        self.save(trainer, pl_module)
        self._written = time.monotonic()
        self.saved = pl_module.steps_done
        self.seconds_written += self._written - begun

    def _write_best(self) -> None:
        for i, content in self._pending.items():
            path = self.best[i]
            assert path is not None
            path.parent.mkdir(parents=True, exist_ok=True)
            write_sealed(path, partial(torch.save, content))
        self._pending = {}

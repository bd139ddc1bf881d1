"""Rows, marks and checkpoints of stacked members: the files that R single runs would write."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from dgbench.callbacks.environment_errors import Listener, rows_of_passes, training_validation_error
from dgbench.callbacks.when_to_test import WhenToTest, at_best, is_last
from dgbench.records import Row, RunIdentity, append_rows, keep_rows_until
from dgbench.types import Score


@dataclass
class MemberFiles:
    """Where one member writes.

    Args:
        rows: its row file.
        best: its ``best.ckpt``.
        identity: who the rows are from.
        scores: the errors to record for it.
        listeners: called with (step, rows) after they are on disk.
    """

    rows: Path
    best: Path
    identity: RunIdentity
    scores: Sequence[Score]
    listeners: Sequence[Listener] = field(default_factory=tuple)


class StackFiles(pl.Callback):
    """Scores all members in one go and writes each member's rows, ``best.ckpt`` and ``last.ckpt``.

    Args:
        members: where each member writes, in the order of the stack.
        seconds: least time between two checkpoints, 0 for every evaluation.
        save: writes a dictionary to a file, whole or not at all.
        eval_test: as of ``EnvironmentErrors``; ``best`` scores all members where any of them is at its best.
    """

    def __init__(
        self,
        members: Sequence[MemberFiles],
        seconds: float,
        save: Callable[[dict[str, Any], Path], None],
        eval_test: str = "always",
    ) -> None:
        self.members, self.seconds, self.save, self.eval_test = list(members), seconds, save, eval_test
        self._written = time.monotonic()
        self._sums: dict[str, dict[str, Any]] = {}
        self._best: dict[int, dict[str, Any]] = {}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        for member in self.members:
            keep_rows_until(member.rows, pl_module.steps_done)
        if self.eval_test == "best":
            scores = [score for member in self.members for score in member.scores]
            WhenToTest(trainer, pl_module, scores, lambda: self._any_at_best(trainer, pl_module))

    def _any_at_best(self, trainer: Any, pl_module: Any) -> bool:
        lowest = trainer.strategy.checkpoint_io.best_errors
        return any(at_best(training_validation_error(rows), lowest[i]) for i, rows in self._rows(pl_module))

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._sums = defaultdict(lambda: defaultdict(float))

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        for key, value in outputs.items():
            self._sums[batch.name][key] = self._sums[batch.name][key] + value.double()

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        best_errors = trainer.strategy.checkpoint_io.best_errors
        for i, rows in self._rows(pl_module):
            member = self.members[i]
            broken = [row.loss for row in rows if not math.isfinite(row.loss)]
            if broken:  # the update of the last step broke the weights
                pl_module.diverged[i] = (pl_module.steps_done, broken[0])
                continue
            error = training_validation_error(rows)
            best = is_last(trainer, pl_module) or at_best(error, best_errors[i])
            if self.eval_test == "best" and not best:
                rows = [row for row in rows if row.subset != "test"]  # scored for the sake of others
            append_rows(member.rows, rows)
            if error < best_errors[i]:
                best_errors[i] = error
                weights = {name: tensor.clone() for name, tensor in pl_module.write_back(i).state_dict().items()}
                self._best[i] = {"step": pl_module.steps_done, "state_dict": weights}
            for listener in member.listeners:
                listener(pl_module.steps_done, rows)

    def _rows(self, pl_module: Any) -> Iterator[tuple[int, list[Row]]]:
        """(number, rows of the passes made so far) of each member that has not diverged."""
        counted = {name: {key: value.cpu() for key, value in sums.items()} for name, sums in self._sums.items()}
        for i, member in enumerate(self.members):
            if i in pl_module.diverged:
                continue
            own = {
                name: {key: float(value if value.dim() == 0 else value[i]) for key, value in sums.items()}
                for name, sums in counted.items()
            }
            yield i, rows_of_passes(member.identity, pl_module.steps_done, member.scores, own)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if time.monotonic() - self._written >= self.seconds:
            self._write(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._write(trainer)

    def _write(self, trainer: pl.Trainer) -> None:
        for i, best in self._best.items():
            self.save(best, self.members[i].best)
        self._best = {}
        trainer.save_checkpoint("every member's last.ckpt")
        self._written = time.monotonic()

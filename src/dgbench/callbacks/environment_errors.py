"""Per-environment errors: every evaluation becomes rows."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn

from dgbench.callbacks.when_to_test import WhenToTest, at_best
from dgbench.errors import DivergedError
from dgbench.records import Row, RunIdentity, append_rows, keep_rows_until, read_rows
from dgbench.types import Score

log = logging.getLogger(__name__)

COUNTED = ("seen", "wrong", "loss")  # of every scoring pass

Listener = Callable[[int, Sequence[Row]], None]


class EnvironmentErrors(pl.Callback):
    """Counts what is wrong in every scoring pass, mixes passes into environments and appends the rows.

    Args:
        file: the member's row file.
        identity: who the rows are from.
        scores: which mixture of passes is the error of which environment and subset.
        listeners: called with (step, rows) after they are on disk.
        final_only: evaluations during training judge weights that are not the result: they leave ``val/loss`` and no
            rows, and only an evaluation after training is recorded.
        eval_test: ``always``; or ``best``, and ``test`` is scored only where the error on ``val`` is the lowest so far
            and at the last step: all that training-domain validation and oracle selection ask for.
    """

    def __init__(
        self,
        file: Path,
        identity: RunIdentity,
        scores: Sequence[Score],
        listeners: Sequence[Listener] = (),
        final_only: bool = False,
        eval_test: str = "always",
    ) -> None:
        self.final_only, self.eval_test = final_only, eval_test
        self.file, self.identity, self.scores, self.listeners = file, identity, scores, listeners
        self._sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._lowest = math.inf

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not trainer.is_global_zero:
            return
        for torn in keep_rows_until(self.file, -1 if self.final_only else int(pl_module.steps_done)):
            log.warning("%s line %d dropped: %s", torn.file, torn.line, torn.reason)
        if self.eval_test == "best":
            self._lowest = lowest_validation_error(self.file)
            WhenToTest(trainer, pl_module, self.scores, lambda: self._at_best(int(pl_module.steps_done)))

    def _at_best(self, step: int) -> bool:
        rows = rows_of_passes(self.identity, step, self.scores, self._sums)
        return at_best(training_validation_error(rows), self._lowest)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._sums.clear()

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        for key, value in outputs.items():
            self._sums[batch.name][key] += float(value)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        step = int(pl_module.steps_done)
        if trainer.world_size > 1:
            self._sum_over_processes(trainer, pl_module.device)
        rows = rows_of_passes(self.identity, step, self.scores, self._sums)
        for row in rows:
            if not math.isfinite(row.loss):  # the update of the last step broke the weights
                raise DivergedError(step, row.loss)
        pl_module.log("val/loss", _over_training_environments(rows, lambda row: row.loss))
        if self.final_only and trainer.state.fn == TrainerFn.FITTING:
            return
        error = training_validation_error(rows)
        pl_module.log("val/error", error)
        self._lowest = min(self._lowest, error)
        if trainer.is_global_zero:  # the first process of several that train one member
            append_rows(self.file, rows)
            for listener in self.listeners:
                listener(step, rows)

    def _sum_over_processes(self, trainer: pl.Trainer, device: torch.device) -> None:
        """Each process has scored some of the batches."""
        names = list(dict.fromkeys(name for score in self.scores for name in score.mixture))
        counts = [[self._sums[name][key] for key in COUNTED] for name in names]
        table = trainer.strategy.reduce(torch.tensor(counts, dtype=torch.float64, device=device), reduce_op="sum")
        for name, row in zip(names, table.tolist(), strict=True):
            self._sums[name] = dict(zip(COUNTED, row, strict=True))


def lowest_validation_error(file: Path) -> float:
    """Lowest mean error over the training environments' ``val`` at any step in a row file; infinity without rows."""
    if not file.exists():
        return math.inf
    steps: dict[int, list[float]] = defaultdict(list)
    for row in read_rows(file)[0]:
        if row["subset"] == "val" and not row["env_held_out"]:
            steps[row["step"]].append(row["wrong"] / row["seen"])
    return min((sum(errors) / len(errors) for errors in steps.values()), default=math.inf)


def rows_of_passes(
    identity: RunIdentity, step: int, scores: Sequence[Score], sums: Mapping[str, Mapping[str, float]]
) -> list[Row]:
    """Rows of those scores whose passes have been made; the arguments are those of :func:`mixed_row`."""
    return [mixed_row(identity, step, score, sums) for score in scores if score.mixture.keys() <= sums.keys()]


def mixed_row(identity: RunIdentity, step: int, score: Score, sums: Mapping[str, Mapping[str, float]]) -> Row:
    """The mixture of passes over the same images: expected counts per image, times the images seen.

    Args:
        identity: who the row is from.
        step: optimizer updates done.
        score: environment, subset and weights of the passes.
        sums: ``seen``, ``wrong`` and summed ``loss`` of every pass.
    """
    seen = {sums[name]["seen"] for name in score.mixture}
    if len(seen) != 1:
        raise ValueError(f"passes {list(score.mixture)} saw different numbers of images: {seen}")
    n = seen.pop()
    held_out = score.env not in identity.given or score.env in identity.held_out
    wrong = sum(weight * sums[name]["wrong"] for name, weight in score.mixture.items())
    return Row(
        identity=identity,
        step=step,
        env=score.env,
        subset=score.subset,
        held_out=held_out if score.held_out is None else score.held_out,
        seen=int(n),
        wrong=min(wrong, n),  # weights that sum to 1 may give a rounding error more
        loss=sum(weight * sums[name]["loss"] for name, weight in score.mixture.items()) / n,
    )


def training_validation_error(rows: Sequence[Row]) -> float:
    """Mean error over the val subsets of the training environments: what an honest user may select on."""
    return _over_training_environments(rows, lambda row: row.error)


def _over_training_environments(rows: Sequence[Row], value: Callable[[Row], float]) -> float:
    """Unweighted mean over the val subsets of the training environments."""
    values = [value(row) for row in rows if row.subset == "val" and not row.held_out]
    return sum(values) / len(values) if values else float("nan")

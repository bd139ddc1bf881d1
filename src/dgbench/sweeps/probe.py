"""How fast models train here, from a second of their steps: the time that a plan tells. Its weights are not kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch

from dgbench.plan.studies import PlannedStudy
from dgbench.training.fit import group_data, group_module, while_fitting
from dgbench.training.groups import Group, plan_groups
from dgbench.training.processes import make_trainer, prepare_process
from dgbench.training.study import studies_of

PROBE_SECONDS = 1.0  # of each algorithm's step loop, after its first chunk
PROBE_CHUNKS = 20


class _Probe(pl.Callback):
    """Clocks the chunks of minibatches; the first one, which warms up, counts only when it is alone."""

    def __init__(self) -> None:
        self.chunks: list[tuple[int, float]] = []  # steps and seconds

    def on_train_batch_start(self, *args: object) -> None:
        self.begun = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: object, batch: Any, batch_idx: int
    ) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.chunks.append((len(batch), time.perf_counter() - self.begun))
        trainer.should_stop = sum(seconds for _, seconds in self.chunks[1:]) > PROBE_SECONDS

    def step_seconds(self) -> float:
        """Compute the mean seconds per step."""
        steps, seconds = (sum(column) for column in zip(*(self.chunks[1:] or self.chunks), strict=True))
        average: float = seconds / steps
        return average


def minibatches_per_second(planned: Sequence[PlannedStudy]) -> float:
    """Measure minibatches of one environment per second, in the largest group (the first of equal ones) of studies."""
    prepare_process()
    studies = studies_of(planned)
    groups = plan_groups([run for study in studies for run in study.runs], studies[0].config["execution"])
    largest = max(groups, key=lambda group: len(group.runs))
    minibatches = sum(run.study.settings.minibatches(len(run.fold.training)) for run in largest.runs)
    return minibatches / _step_seconds(largest)


def _step_seconds(group: Group) -> float:
    """Measure the seconds of one step of a group, evaluations left out."""
    probe = _Probe()
    trainer = make_trainer(group.runs[0].study.settings, [probe], epochs=1)
    trainer.limit_val_batches = 0
    trainer.limit_train_batches = PROBE_CHUNKS
    with while_fitting():
        trainer.fit(group_module(group), datamodule=group_data(group))
    return probe.step_seconds()

"""How fast models train and are evaluated here, from a second of each: the time that a plan tells.

The weights are not kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch

from dgbench.plan.studies import PlannedStudy
from dgbench.training.fit import group_data, group_module, while_fitting
from dgbench.training.groups import RunGroup, plan_groups
from dgbench.training.processes import make_trainer, prepare_process
from dgbench.training.study import studies_of

PROBE_SECONDS = 1.0  # of each algorithm's step loop, after its first chunk
PROBE_CHUNKS = 20
SCORED_BATCHES = 2  # of each eval set, at most


class _Probe(pl.Callback):
    """Clocks the chunks of minibatches; the first one, which warms up, counts only when it is
    alone.
    """

    def __init__(self) -> None:
        self.chunks: list[tuple[int, float]] = []  # steps and seconds

    def on_train_batch_start(self, *args: object) -> None:
        self.begun = time.perf_counter()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.chunks.append((len(batch), time.perf_counter() - self.begun))
        trainer.should_stop = sum(seconds for _, seconds in self.chunks[1:]) > PROBE_SECONDS

    def step_seconds(self) -> float:
        """Compute the mean seconds per step."""
        steps, seconds = (
            sum(column) for column in zip(*(self.chunks[1:] or self.chunks), strict=True)
        )
        average: float = seconds / steps
        return average


class _ScoreProbe(pl.Callback):
    """Clocks the images that are scored, after the first batch, which warms up."""

    def __init__(self) -> None:
        self.images = 0
        self.begun: float | None = None

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if self.begun is None:
            self.begun = time.perf_counter()
        else:
            self.images += len(batch.y)

    def seconds(self, images: int) -> float:
        """Compute the seconds of an evaluation of so many images; 0 where too few were scored to
        tell.
        """
        if self.begun is None or not self.images:
            return 0.0
        return images * (self.ended - self.begun) / self.images

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.ended = time.perf_counter()


def minibatches_per_second(planned: Sequence[PlannedStudy]) -> float:
    """Measure minibatches of one environment per second, evaluations included.

    They are those of the largest group (the first of equal ones) of some studies.
    """
    prepare_process()
    studies = studies_of(planned)
    groups = plan_groups(
        [run for study in studies for run in study.runs], studies[0].config["execution"]
    )
    largest = max(groups, key=lambda group: len(group.runs))
    minibatches = sum(
        run.study.settings.minibatches(len(run.fold.training)) for run in largest.runs
    )
    return minibatches / _step_seconds(largest)


def _step_seconds(group: RunGroup) -> float:
    """Measure the seconds of one step of a group, and of its share of an evaluation."""
    settings, module, data = group.runs[0].study.settings, group_module(group), group_data(group)
    probe = _Probe()
    scores = _ScoreProbe()
    trainer = make_trainer(settings, [probe, scores], epochs=1)
    trainer.limit_val_batches = 0
    trainer.limit_train_batches = PROBE_CHUNKS
    with while_fitting():
        trainer.fit(module, datamodule=data)
        trainer.limit_val_batches = SCORED_BATCHES
        trainer.validate(module, datamodule=data, verbose=False)
    scored = data.environments.eval_sets(data.eval_set_names()).values()
    evaluation = scores.seconds(sum(len(images.indices) for images in scored))
    evaluations = -(-settings.steps // settings.eval_every)
    return probe.step_seconds() + evaluation * evaluations / max(1, settings.steps)

"""How fast models train here, from a second of their steps: the time that a plan tells. Nothing is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig

from dgbench.cli.member import fit_quietly, make_trainer
from dgbench.cli.prepare import prepare_process
from dgbench.cli.stacking import Group, plan_groups
from dgbench.cli.study import Study
from dgbench.data.environments import Environments
from dgbench.data.stacked import StackedData
from dgbench.training.stacked import StackedMembers

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
        """Seconds per step."""
        steps, seconds = (sum(column) for column in zip(*(self.chunks[1:] or self.chunks), strict=True))
        average: float = seconds / steps
        return average


def minibatches_per_second(studies: Sequence[tuple[DictConfig, Path]]) -> float:
    """Minibatches of one environment each per second, of the largest group that these studies would train in.

    Args:
        studies: configuration and folder of some studies of the same kind.
    """
    prepare_process()
    first = Study(*studies[0])
    found = [first, *(Study(config, folder, _same_images(config, first)) for config, folder in studies[1:])]
    groups = plan_groups([(study, member) for study in found for member in study.members], first.config.execution)
    largest = max(groups, key=lambda group: len(group.members))
    return sum(len(member.fold.training) for _, member in largest.members) / _step_seconds(largest)


def _same_images(config: DictConfig, study: Study) -> Environments | None:
    return study.environments if config.dataset == study.config.dataset else None


def _step_seconds(group: Group) -> float:
    """Seconds of one step of a group, evaluations left out."""
    study, member = group.members[0]
    probe = _Probe()
    trainer = make_trainer(study, [probe])
    trainer.limit_val_batches = 0
    trainer.limit_train_batches = PROBE_CHUNKS
    trainer.fit_loop.max_epochs = 1
    if group.stacked:
        stack = StackedMembers(group.modules, group.record)
        fit_quietly(trainer, stack, StackedData([m.data for _, m in group.members]), None)
    else:
        fit_quietly(trainer, study.module(member.fold), member.data, None)
    return probe.step_seconds()

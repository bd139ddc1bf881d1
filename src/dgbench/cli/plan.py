"""``plan=true``: what a command would train, and how long that would take here. Nothing is started."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig

from dgbench.callbacks.status import read_status
from dgbench.cli.member import make_trainer
from dgbench.cli.stacking import Group, plan_groups
from dgbench.cli.study import Study
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


def print_plan(studies: Sequence[Study], execution: DictConfig) -> None:
    """Studies and models by algorithm: done, failed, to train; and the time the rest takes, from a probe of each."""
    marks = {m.identity.run: read_status(m.folder).split(" ")[0] or "MISSING" for s in studies for m in s.members}
    groups = plan_groups([(s, m) for s in studies for m in s.members if marks[m.identity.run] != "DONE"], execution)
    seconds: Counter[str] = Counter()
    probed: dict[str, float] = {}
    for group in groups:
        study, member = group.members[0]
        name = study.config.algorithm.name
        images = study.trainer.batch_size * len(member.fold.training) * len(group.members)
        if name not in probed:
            probed[name] = _step_seconds(group) / images
        left = study.trainer.steps - (int(group.modules[0].steps_done) if group.modules else 0)
        seconds[name] += probed[name] * images * left  # type: ignore[assignment]
    print(f"{'algorithm':<12}{'studies':>9}{'models':>8}{'done':>7}{'failed':>8}{'to train':>10}{'time':>13}")
    names = list(dict.fromkeys(study.config.algorithm.name for study in studies))
    for name in [*names, "all"]:
        own = [study for study in studies if name in ("all", study.config.algorithm.name)]
        found = Counter(marks[member.identity.run] for study in own for member in study.members)
        left = found.total() - found["DONE"]
        needed = sum(seconds.values()) if name == "all" else seconds[name]
        print(
            f"{name:<12}{len(own):>9}{found.total():>8}{found['DONE']:>7}{found['FAILED']:>8}{left:>10}{_duration(needed):>13}"
        )
    stacks = [len(group.members) for group in groups if group.stacked]
    print(f"{len(groups)} training runs, {len(stacks)} of them stacks of {max(stacks, default=0)} members at most;")
    print("time from a probe of each algorithm's steps on this machine, evaluations left out. Nothing was started.")


def _step_seconds(group: Group) -> float:
    """Seconds of one step of a group, evaluations left out."""
    study, member = group.members[0]
    probe = _Probe()
    trainer = make_trainer(study, [probe])
    trainer.limit_val_batches = 0
    trainer.limit_train_batches = PROBE_CHUNKS
    trainer.fit_loop.max_epochs = 1
    if group.stacked:
        trainer.fit(StackedMembers(group.modules), datamodule=StackedData([m.data for _, m in group.members]))
    else:
        trainer.fit(study.module(member.fold), datamodule=member.data)
    return probe.step_seconds()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"

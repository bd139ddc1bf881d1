"""Which weights of a classifier count, and what it puts out with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.batches import Tensors
from dgbench.containers import AnyNetworks, renew_statistics
from dgbench.data.minibatches import EnvironmentData
from dgbench.shift.classifiers import ShiftClassifier
from dgbench.shift.estimators import Schedule
from dgbench.shift.samples import SampleStore
from dgbench.training.checkpoints import Snapshot
from dgbench.training.modules import RunModule, SingleRun
from dgbench.training.modules.predicting import images_at_once

FEATURES_AT_ONCE = 16384
LINE_SECONDS = 15.0  # between two lines of progress


class Judge(pl.Callback):
    """Looks at the validation images after every interval, keeps the weights that count, and predicts at the end.

    Args:
        schedule: of all classifiers.
        data: their minibatches, of a :class:`SampleStore`.
        checkpoint: file for the state of a stack that is interrupted; None keeps none.
        every: least seconds between two checkpoints.
        tell: called with a line of progress.

    Attributes:
        results: of each classifier outputs (k, c), validation loss, validation error, and the step that counts.
        seconds: of training, evaluations included.
        interrupted: training did not come to its end.
    """

    def __init__(
        self,
        schedule: Schedule,
        data: EnvironmentData,
        checkpoint: Path | None,
        every: float,
        tell: Callable[[str], None],
    ) -> None:
        assert isinstance(data.environments.store, SampleStore)
        self.schedule, self.data, self.store, self.n = schedule, data, data.environments.store, len(data.runs)
        self.checkpoint, self.every, self.tell = checkpoint, every, tell
        self.results: list[tuple[np.ndarray, float, float, int]] = []
        self.seconds, self.interrupted = 0.0, True
        self._best: list[tuple[float, float, int, Tensors] | None] = [None] * self.n
        self._mean: dict[str, Tensor] = {}
        self._averaged = 0
        self._saved = self._spoke = time.monotonic()

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._begun = time.monotonic()
        if self.schedule.mean_from is not None:
            pl_module.after_step.append(lambda done: self._average(pl_module, done))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        last = pl_module.steps_done >= self.schedule.steps
        chooses = self.schedule.chooses and self.schedule.looks(pl_module.steps_done)
        if chooses or (last and self.schedule.mean_from is None):
            for i in range(self.n):
                self._look(pl_module, i)
        if not last and time.monotonic() - self._spoke > LINE_SECONDS:
            self._spoke = time.monotonic()
            self.tell(f"step {pl_module.steps_done} of {self.schedule.steps}")
        if self.checkpoint and not last and time.monotonic() - self._saved >= self.every:
            self._save(pl_module)

    @torch.no_grad()
    def _look(self, module: RunModule, i: int) -> None:
        networks = module.evaluated(i)[0]
        loss, error = self._validated(module, networks, i)
        best = self._best[i]
        better = best is None or (error < best[1] if self.schedule.chooses == "error" else loss < best[0])
        if better or self.schedule.chooses is None:
            kept = {**networks.params(), **networks.statistics()}
            self._best[i] = loss, error, module.steps_done, {k: v.detach().clone() for k, v in kept.items()}

    @torch.no_grad()
    def _average(self, module: RunModule, done: int) -> None:
        assert self.schedule.mean_from is not None
        if done <= self.schedule.mean_from:
            return
        self._averaged += 1
        for name, value in module.live_parameters().items():
            mean = self._mean.setdefault(name, torch.zeros_like(value))
            mean += (value.detach() - mean) / self._averaged

    @torch.no_grad()
    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if pl_module.steps_done < self.schedule.steps:
            return  # Ctrl-C
        for i in range(self.n):
            networks = pl_module.evaluated(i)[0]
            if self.schedule.mean_from is None:
                best = self._best[i]
                assert best is not None
                loss, error, step, weights = best
                networks = networks.bind(weights)
            else:
                networks, step = self._with_mean(pl_module, networks, i), self.schedule.steps
                loss, error = self._validated(pl_module, networks, i)
            outputs = self._outputs(pl_module, networks, self.store.predicted(i))[0]
            self.results.append((outputs.double().cpu().numpy(), loss, error, step))
        self.seconds, self.interrupted = time.monotonic() - self._begun, False

    def _with_mean(self, module: RunModule, networks: AnyNetworks, i: int) -> AnyNetworks:
        """The networks with their mean weights, and with statistics of BatchNorm for these."""
        alone = isinstance(module, SingleRun)
        means = {name: value if alone else value[i] for name, value in self._mean.items()}
        if not alone:
            return networks.bind(means)
        trained = module.runs[0].networks
        for name, parameter in trained.params().items():
            parameter.copy_(means[name])
        steps = range(getattr(self.data.runs[0], "per_epoch", self.schedule.steps))
        images = (self.data.batches(step, 1)[0].x.to(trained.dtype) for step in steps)
        renew_statistics(trained, trained.featurizer, images)
        return trained.eval()

    def _validated(self, module: RunModule, networks: AnyNetworks, i: int) -> tuple[float, float]:
        """Mean cross entropy and fraction wrong."""
        algorithm: Any = module.runs[i].algorithm
        rows, sides = self.store.validation(i)
        outputs, y = self._outputs(module, networks, rows)
        logits, target = algorithm.judged(outputs, y, torch.from_numpy(sides).to(y.device))
        wrong = (logits.argmax(1) != target).double().mean()
        return float(F.cross_entropy(logits.double(), target)), float(wrong)

    def _outputs(self, module: RunModule, networks: AnyNetworks, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """(n,) rows of the store -> (n, c) outputs and (n,) labels."""
        algorithm: Any = module.runs[0].algorithm
        assert isinstance(algorithm, ShiftClassifier)
        images = len(self.store.image) > 1
        size = images_at_once(module.runs[0].activations(self.store.image), module.device) if images else 0
        parts = []
        for part in torch.split(torch.from_numpy(rows), size or FEATURES_AT_ONCE):
            x, y = self.store.gather(part)
            parts.append((algorithm.outputs(networks, x.to(module.runs[0].networks.dtype)), y))
        outputs, labels = zip(*parts, strict=True)
        return torch.cat(outputs), torch.cat(labels)

    def _save(self, module: RunModule) -> None:
        assert self.checkpoint is not None
        states = {str(i): {**module.run_state(i), "best": self._best[i]} for i in range(self.n)}
        states["mean"] = {"n": self._averaged, "weights": {name: value.cpu() for name, value in self._mean.items()}}
        diverged = {str(i): (step, float(value)) for i, (step, value) in module.diverged.items()}
        Snapshot(module.steps_done, states, diverged).save(self.checkpoint)
        self._saved = time.monotonic()

    def restore(self, module: RunModule) -> None:
        """Continue from a checkpoint, if there is one."""
        snapshot = Snapshot.load(self.checkpoint) if self.checkpoint else None
        if snapshot is None or len(snapshot.runs) != self.n + 1:
            return
        mean = snapshot.runs.pop("mean")
        self._averaged, self._mean = mean["n"], mean["weights"]
        states = [snapshot.runs[str(i)] for i in range(self.n)]
        self._best = [state.pop("best") for state in states]
        module.load_run_states(states)
        module.diverged.update({int(i): how for i, how in snapshot.diverged.items()})

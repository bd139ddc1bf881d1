"""Loss, penalties, learning rates and speed of training, every few steps, for the metrics of each run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
from numpy.typing import NDArray

from dgbench.callbacks.loggers import Guard
from dgbench.callbacks.run_metrics import RunMetrics


class TrainingMetrics(pl.Callback):
    """Logs means over the steps since the last line, which a checkpoint takes along.

    Speed is that of the steps, with the gathering of their minibatches; evaluations and checkpoints are left out. All
    runs of a stack take their steps at once, each of them at this speed. It must stand before the callback that writes
    checkpoints, and after the one that records rows.

    Args:
        runs: in the order of the module; None for a run that is complete and computed once more beside others.
        every: steps between two lines; the last step has one, too.
        steps: optimizer steps in all.
        safely: what guards the reading of values.
        writing: seconds spent on checkpoints so far.
    """

    def __init__(
        self,
        runs: Sequence[RunMetrics | None],
        *,
        every: int,
        steps: int,
        safely: Guard,
        writing: Callable[[], float],
    ) -> None:
        self.runs, self.every, self.steps, self.safely, self.writing = list(runs), every, steps, safely, writing
        self._sums: dict[str, NDArray[np.float64]] = {}  # (R,) each, of what the steps since the last line logged
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._n, self._seconds = 0, 0.0  # steps since the last line, and what they took
        self._begun = self._written = 0.0
        self._images = 0  # of a run's minibatches of one step, all processes together

    # ---- what a checkpoint takes along --------------------------------------------------------------------------

    def state(self, i: int) -> dict[str, Any]:
        """What run ``i`` has logged since its last line."""
        means = {name: [float(self._sums[name][i]), int(self._counts[name][i])] for name in self._sums}
        return {"sums": means, "steps": self._n, "seconds": self._seconds}

    def load_states(self, states: Sequence[Mapping[str, Any] | None]) -> None:
        """Continue from the :meth:`state` of each run; None where it was trained without a logger."""
        for i, state in enumerate(states):
            for name, (total, count) in (state or {"sums": {}})["sums"].items():
                self._of(self._sums, name, np.float64)[i] = total
                self._of(self._counts, name, np.int64)[i] = count
            if state:
                self._n, self._seconds = state["steps"], state["seconds"]

    def save(self) -> None:
        """Hand on what was logged."""
        for run in self._present():
            run.save()

    # ---- training -----------------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        pl_module.collects = True
        for run in self._present():
            run.begin(pl_module.steps_done)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._mark()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        seconds = time.perf_counter() - self._begun - (self.writing() - self._written)
        self.safely(lambda: self._add(pl_module, batch, seconds, trainer.world_size))
        pl_module.collects = not self.safely.off
        self._mark()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self.save()

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._n:  # an averaging of weights has ended training before its last step
            self.safely(lambda: self._log(pl_module, pl_module.steps_done))

    def _mark(self) -> None:
        self._begun, self._written = time.perf_counter(), self.writing()

    def _add(self, module: Any, batch: Sequence[Any], seconds: float, processes: int) -> None:
        """Count the steps of some minibatches in, and log a line wherever one is due."""
        values: dict[int, list[tuple[str, NDArray[Any]]]] = {}
        for step, name, value in module.take_values():
            values.setdefault(step, []).append((name, value))
        first = module.steps_done - len(batch)
        self._images = processes * int(batch[0].y.shape[-1])
        for step in range(first, first + len(batch)):
            for name, value in values.get(step, ()):
                self._of(self._sums, name, np.float64)[:] += value
                self._of(self._counts, name, np.int64)[:] += 1
            self._n += 1
            self._seconds += seconds / len(batch)
            if (step + 1) % self.every == 0 or step + 1 == self.steps:
                self._log(module, step + 1)

    def _log(self, module: Any, step: int) -> None:
        speed = self._n / self._seconds if self._seconds > 0 else 0.0
        common = {"speed/steps_per_s": speed, "speed/images_per_s": speed * self._images}
        for i, run in enumerate(self.runs):
            if run is None or i in module.diverged:
                continue
            means = {
                f"train/{name}": float(total[i] / self._counts[name][i])
                for name, total in self._sums.items()
                if self._counts[name][i]
            }
            rates = {f"lr/{name}": rate for name, rate in module.learning_rates(i, step - 1).items()}
            run.log(step, {**means, **rates, **common})
        self._sums, self._counts, self._n, self._seconds = {}, {}, 0, 0.0

    def _of(self, table: dict[str, Any], name: str, dtype: Any) -> Any:
        return table.setdefault(name, np.zeros(len(self.runs), dtype))

    def _present(self) -> list[RunMetrics]:
        return [run for run in self.runs if run is not None]

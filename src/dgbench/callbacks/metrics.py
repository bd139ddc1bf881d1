"""Gather loss, penalties, learning rates, speed and errors of each run.

They are for its ``metrics.csv`` and for a logger.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from numpy.typing import NDArray

from dgbench.callbacks.loggers import Guard, MetricsLogger, RunInfo, RunLog, error_values
from dgbench.plan.settings import TrainerSettings
from dgbench.records.metrics import (
    ERRORS,
    METRICS_FILE,
    Lines,
    append_metrics,
    read_metrics,
    write_metrics,
)
from dgbench.records.rows import ROW_FILE, Row, read_rows, row_of


@dataclass
class RunMetrics:
    """Collects lines, and hands them on at every evaluation and before every checkpoint.

    So a checkpoint's steps are always on disk. What a run logged after the checkpoint that it
    continues from is dropped from the file, and not shown again by a logger that has seen it.
    """

    run: RunInfo  #: whose metrics
    #: shows lines while the run trains; None: it is shown at its end
    live: MetricsLogger | None
    guard: Guard  #: guards the file; shared by the runs of a job
    _log: RunLog | None = field(default=None, init=False)
    _waiting: Lines = field(default_factory=dict, init=False)
    _shown: set[tuple[int, frozenset[str]]] = field(default_factory=set, init=False)

    def begin(self, step: int) -> None:
        """Continue after ``step`` optimizer steps, or start with 0.

        The rows of the run end there.
        """
        before: Lines = {}
        remaining: Lines = {}
        file = self.run.folder / METRICS_FILE

        def cut() -> None:
            before.update(read_metrics(file))
            up_to_step = {done: values for done, values in before.items() if done <= step}
            remaining.update(with_errors(up_to_step, self.run.folder))
            write_metrics(file, remaining)

        self.guard.attempt(cut)
        if self.live is None:
            return
        self._log = self.live.open(self.run)
        if self._log.continues:
            self._shown = {(done, frozenset(values)) for done, values in before.items()}
        for done, values in remaining.items():
            if self._log.continues:
                self._log.skip(done, values)
            else:
                self._log.log(done, values)

    def rows(self, step: int, rows: Sequence[Row]) -> None:
        """Log the errors of one evaluation."""
        self.log(step, error_values(rows))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log values by name after ``step`` optimizer steps; those of one step make one line."""
        self._waiting.setdefault(step, {}).update(values)

    def save(self) -> None:
        """Append what was logged to ``metrics.csv``, and hand it on to the logger."""
        lines = self._waiting
        self._waiting = {}
        if lines:
            self.guard.attempt(lambda: append_metrics(self.run.folder / METRICS_FILE, lines))
        if self._log is None:
            return
        for step, values in lines.items():
            if (step, frozenset(values)) not in self._shown:
                self._log.log(step, values)
        self._log.round_ends()

    def finish(self, failed: bool = False) -> None:
        """Save what was logged, and close the log of the run: it ends, or is interrupted."""
        self.save()
        if self._log is not None:
            self._log.finish(failed)
            self._log = None


def with_errors(lines: Lines, folder: Path) -> Lines:
    """Replace the errors in the lines of a run by those of its rows.

    Errors that were recorded without a logger are added.

    Raises:
        OSError: the rows cannot be read.
    """
    file = folder / ROW_FILE
    rows = [row_of(flat) for flat in read_rows(file)[0]] if file.exists() else []
    merged = {}
    for step, line in lines.items():
        merged[step] = {name: v for name, v in line.items() if not name.startswith(ERRORS)}
    for step, evaluation in groupby(rows, key=lambda row: row.step):
        merged.setdefault(step, {}).update(error_values(list(evaluation)))
    return {step: values for step, values in sorted(merged.items()) if values}


@dataclass(eq=False, repr=False)
class TrainingMetrics(pl.Callback):
    """Logs means over the steps since the last line, which a checkpoint takes along.

    Speed is that of the steps, with the gathering of their minibatches; evaluations and checkpoints
    are left out. All runs of a stack take their steps at once, each at this speed. The callback
    must stand before the one that writes checkpoints, and after the one that records rows.
    """

    #: in the order of the module; None for a run that is complete and computed once more beside
    #: others
    runs: Sequence[RunMetrics | None]
    #: ``log_every`` steps are between two lines, and the last step has one, too
    settings: TrainerSettings
    guard: Guard  #: guards the reading of values
    writing: Callable[[], float]  #: seconds spent on checkpoints so far
    # (2, R) each, sum and number of what steps logged
    _totals: defaultdict[str, NDArray[np.float64]] = field(init=False)
    _n: int = field(default=0, init=False)  # steps since the last line
    _seconds: float = field(default=0.0, init=False)  # what they took
    _begun: float = field(default=0.0, init=False)
    _written: float = field(default=0.0, init=False)
    # of a run's minibatches of one step, all processes together
    _images: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._totals = defaultdict(lambda: np.zeros((2, len(self.runs))))

    # ---- what a checkpoint takes along -----------------------------------------------------------

    def state(self, i: int) -> dict[str, Any]:
        """Return what run ``i`` has logged since its last line."""
        totals = {}
        for name, (sums, counts) in self._totals.items():
            totals[name] = [float(sums[i]), int(counts[i])]
        return {"sums": totals, "steps": self._n, "seconds": self._seconds}

    def load_states(self, states: Sequence[Mapping[str, Any] | None]) -> None:
        """Continue from the :meth:`state` of each run; None for one trained without a logger."""
        for i, state in enumerate(states):
            if not state:
                continue
            for name, sum_and_count in state["sums"].items():
                self._totals[name][:, i] = sum_and_count
            self._n = state["steps"]
            self._seconds = state["seconds"]

    def save(self) -> None:
        """Hand on what was logged, of every run that is not complete."""
        for run in self._open_metrics():
            run.save()

    # ---- training --------------------------------------------------------------------------------

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        pl_module.collects = True
        for run in self._open_metrics():
            run.begin(pl_module.steps_done)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._mark()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        seconds = time.perf_counter() - self._begun - (self.writing() - self._written)
        self.guard.attempt(lambda: self._add(pl_module, batch, seconds, trainer.world_size))
        pl_module.collects = not self.guard.off
        self._mark()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self.save()

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if self._n:  # an averaging of weights has ended training before its last step
            self.guard.attempt(lambda: self._log(pl_module, pl_module.steps_done))

    def _mark(self) -> None:
        self._begun = time.perf_counter()
        self._written = self.writing()

    def _add(self, module: Any, batch: Sequence[Any], seconds: float, processes: int) -> None:
        """Count the steps of some minibatches in, and log each line that is due."""
        values: dict[int, list[tuple[str, NDArray[Any]]]] = {}
        for step, name, value in module.take_values():
            values.setdefault(step, []).append((name, value))
        first = module.steps_done - len(batch)
        self._images = processes * int(batch[0].y.shape[-1])
        self._show(module, values.get(module.steps_done - 1, ()))
        for step in range(first, first + len(batch)):
            for name, value in values.get(step, ()):
                self._totals[name] += np.stack([value, np.ones(len(self.runs))])
            self._n += 1
            self._seconds += seconds / len(batch)
            if (step + 1) % self.settings.log_every == 0 or step + 1 == self.settings.steps:
                self._log(module, step + 1)

    def _show(self, module: Any, values: Sequence[tuple[str, NDArray[Any]]]) -> None:
        """Show the last step to other callbacks.

        Of a stack they see means over its runs, and the learning rates of its first.
        """
        last = {f"train/{name}": float(np.mean(value)) for name, value in values}
        rates = _learning_rates(module, 0, module.steps_done - 1)
        module.log_dict({**last, **rates}, logger=False)

    def _log(self, module: Any, step: int) -> None:
        speed = self._n / self._seconds if self._seconds > 0 else 0.0
        common = {"speed/steps_per_s": speed, "speed/images_per_s": speed * self._images}
        for i, run in enumerate(self.runs):
            if run is None or i in module.diverged:
                continue
            means = {}
            for name, (sums, counts) in self._totals.items():
                if counts[i]:
                    means[f"train/{name}"] = float(sums[i] / counts[i])
            run.log(step, {**means, **_learning_rates(module, i, step - 1), **common})
        self._totals.clear()
        self._n = 0
        self._seconds = 0.0

    def _open_metrics(self) -> list[RunMetrics]:
        return [run for run in self.runs if run is not None]


def _learning_rates(module: Any, i: int, step: int) -> dict[str, float]:
    """Return the learning rates of run ``i`` in a step by the names that are logged."""
    return {f"lr/{name}": rate for name, rate in module.learning_rates(i, step).items()}

"""Train one group from wherever it stands to its final rows. A single run is a group of one."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor

from dgbench.callbacks.averaged import AveragedScores
from dgbench.callbacks.checkpointer import Checkpointer
from dgbench.callbacks.loggers import Guard
from dgbench.callbacks.metrics import RunMetrics, TrainingMetrics
from dgbench.callbacks.predictions import PredictionWriter
from dgbench.callbacks.progress import Heartbeat
from dgbench.callbacks.recorder import Recorder, RunRecord
from dgbench.callbacks.users import CallbackLog, UserCallbacks
from dgbench.data.minibatches import EnvironmentData
from dgbench.interruption import STOPS, raise_if_ending
from dgbench.plan.building import build, without
from dgbench.records.files import Checksum
from dgbench.records.metrics import METRICS_FILE
from dgbench.records.predictions import PREDICTION_FILE
from dgbench.records.rows import ROW_FILE, lines_before
from dgbench.training.checkpoints import Snapshot, best_file, group_file, point_to
from dgbench.training.frozen_weights import KEY, FrozenWeights, read_frozen
from dgbench.training.groups import RunGroup
from dgbench.training.modules import LightningRuns, StackedRuns
from dgbench.training.predicted_again import predicted_run
from dgbench.training.processes import CalmSigterm, Process, make_trainer, normal_numbers
from dgbench.training.run_folder import write_model
from dgbench.training.study import ReadyRun


class Fit:
    """Trains a group from wherever it stands, with its callbacks and its checkpoints.

    Args:
        group: the runs.
        snapshot: state to continue from; None for the beginning.
        finished: hashes of runs that are complete, and computed once more beside the others.
        callbacks: what else is done, by process 0.
        metrics: of each run what is logged beside its rows; None for one that is finished. Empty
            logs nothing.
        guard: what guards the metrics.
        process: which process of a distributed run this is; None trains alone.
        until: step to train to, at which an evaluation falls; None trains to the last.
    """

    def __init__(
        self,
        group: RunGroup,
        snapshot: Snapshot | None = None,
        finished: Collection[str] = (),
        callbacks: Sequence[pl.Callback] = (),
        metrics: Sequence[RunMetrics | None] = (),
        guard: Guard | None = None,
        process: Process | None = None,
        until: int | None = None,
    ) -> None:
        self.group = group
        self.finished = finished
        self.others = callbacks
        self.process = process
        self.study = group.runs[0].study
        self.settings = self.study.settings
        self.until = self.settings.steps if until is None else until
        self.module = group_module(group)
        self.data = group_data(group)
        self.module.training_images = self.data.training_images
        self.frozen = self._frozen_weights()
        averaging = self.study.averaging()
        self.averaging = None
        if averaging:
            constant = self.frozen[0].tensors if self.frozen[0] else ()
            self.averaging = AveragedScores(averaging.rule, self.settings.steps, constant)
        self.final_only = averaging is not None and averaging.rule.final_only
        users = self.study.config["callbacks"]
        named = {name: build(without(users, name, "passive"), name) for name in users}
        self.users = UserCallbacks(named) if named else None
        is_first = process is None or process.rank == 0
        logged = metrics or [None] * len(group.runs)
        records = self._records(logged, is_first)
        self.recorder = Recorder(
            records, self.final_only, self.settings.eval_test, self.settings.class_errors
        )
        self.predictions = self._predictions()
        self.checkpointer = self._checkpointer() if is_first else None
        self.metrics = None
        if metrics or self.users:
            guard = guard or Guard(METRICS_FILE)
            self.metrics = TrainingMetrics(logged, self.settings, guard, self._seconds_written)
        self.log = None
        if self.users:
            self.log = CallbackLog(group.runs[0].folder, logged, lambda: self.module.steps_done)
        self.data.one_by_one = self.users is not None
        if snapshot:
            self.restore(snapshot)
        if is_first:
            self._write_frozen()

    def _seconds_written(self) -> float:
        """Return the seconds that checkpoints have taken so far."""
        return self.checkpointer.seconds_written if self.checkpointer else 0.0

    def train(self) -> dict[str, tuple[int, float]]:
        """Train the group to its final rows.

        Returns:
            Step and value of the first loss that was not finite, by hash of the runs of a stack
            that diverged.

        Raises:
            DivergedError: the losses of all runs stopped being finite.
            ConfigError: the trainer's settings cannot work here.
        """
        settings = self.settings
        module = self.module
        intervals = 0
        if module.steps_done < self.until:
            every = settings.eval_every
            intervals = -(-self.until // every) - module.steps_done // every
        trainer = make_trainer(settings, self.callbacks(), intervals, self.process, self.log)
        try:
            with while_fitting():
                trainer.fit(module, datamodule=self.data)
                # known to be the last evaluation
                if self.final_only or self._evaluates_again or not settings.steps:
                    trainer.validate(module, datamodule=self.data, verbose=False)
        finally:
            # data and progress outlive this training, and would keep its weights and moments
            self.data.trainer = None
            for callback in self.others:  # Lightning gave it the module's methods
                for name in ("log", "log_dict"):
                    vars(callback).pop(name, None)
        if not settings.steps and self.checkpointer:
            self.checkpointer.write(trainer, module)
        return {self.group.runs[i].hash: divergence for i, divergence in module.diverged.items()}

    def callbacks(self) -> list[pl.Callback]:
        """List all callbacks, each after those that it depends on."""
        callbacks: list[pl.Callback] = []
        if self.process:
            callbacks.append(CalmSigterm())
        callbacks.append(self.recorder)
        if self.predictions:
            callbacks.append(self.predictions)
        callbacks.extend(self.others)
        if self.metrics:
            callbacks.append(self.metrics)
        if self.users:
            callbacks += [self.users, *self.users.callbacks.values()]
        if self.checkpointer:
            unfinished = [run.folder for run in self.group.runs if run.hash not in self.finished]
            callbacks += [self.checkpointer, Heartbeat(unfinished, self.settings.steps)]
        if self.averaging:  # puts the live weights back after all that read others
            callbacks.append(self.averaging)
        return callbacks

    def _records(self, metrics: Sequence[RunMetrics | None], first: bool) -> list[RunRecord]:
        """Build the record of each run's rows.

        If ``first``, write what the models of unfinished runs are.
        """
        records = []
        for run, template, logged in zip(self.group.runs, self.module.runs, metrics, strict=True):
            file = self._unless_finished(run, run.folder / ROW_FILE)
            identity = run.identity(template)
            listeners = [logged.rows] if logged else []
            records.append(RunRecord(file, identity, run.data.recipes, listeners))
            if file and first:
                write_model(run, identity)
        return records

    def _predictions(self) -> PredictionWriter | None:
        """Build the callback that writes predictions, or return None if none are asked for."""
        which = self.settings.predictions
        if which == "none":
            return None
        predicted = []
        for run in self.group.runs:
            file = self._unless_finished(run, run.folder / PREDICTION_FILE)
            predicted.append(predicted_run(run, file))
        return PredictionWriter(predicted, which, self.recorder)

    def _unless_finished(self, run: ReadyRun, file: Path) -> Path | None:
        """Return a file of a run, or None if the run is finished and computed once more."""
        return None if run.hash in self.finished else file

    # ---- frozen weights --------------------------------------------------------------------------

    def _frozen_weights(self) -> list[FrozenWeights | None]:
        """Copy the weights of each run that its checkpoints leave out; None if they hold all."""
        if not self.study.tuning.trains_few:
            return [None] * len(self.group.runs)
        return [FrozenWeights.of(run.networks) for run in self.module.runs]

    def _write_frozen(self) -> None:
        """Write them to the folders of unfinished runs, before any checkpoint stands there."""
        for run, frozen in zip(self.group.runs, self.frozen, strict=True):
            if frozen and run.hash not in self.finished:
                frozen.write(run.folder)

    def _left_out(self, i: int, state_dict: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return what a checkpoint holds of the weights of run ``i``."""
        frozen = self.frozen[i]
        return frozen.left_out(state_dict) if frozen else {"state_dict": state_dict}

    def _whole_state(self, i: int, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Put the frozen weights back into the state of run ``i``.

        They are the initial ones, or if those are others by now the ones that the run has on disk.

        Raises:
            WeightsError: they are gone or damaged.
        """
        digest = state.get(KEY)
        if digest is None:
            return state
        frozen = self.frozen[i]
        if frozen is None or frozen.digest != digest:
            frozen = read_frozen(self.group.runs[i].folder / "checkpoints", digest)
            self.frozen[i] = frozen
        return {**state, "state_dict": {**frozen.tensors, **state["state_dict"]}}

    def _checkpointer(self) -> Checkpointer:
        group = self.group
        path = group_file(group)

        def save(trainer: pl.Trainer, pl_module: Any) -> None:
            if self.metrics:
                self.metrics.save()  # what a checkpoint holds the steps of is on disk
            self.snapshot(trainer.should_stop and self._evaluates_again).save(path)
            point_to(group, path)

        best = [self._unless_finished(run, best_file(run)) for run in group.runs]
        return Checkpointer(save, best, self.recorder, self.settings, self._left_out)

    def _last_evaluated(self) -> int:
        """Find the step of the last rows that stand before the present state, or -1 without any."""
        step = self.module.steps_done
        for run, written in zip(self.group.runs, self.recorder.written, strict=True):
            if run.hash not in self.finished:
                before = lines_before(run.folder / ROW_FILE, step)
                return step if written.size > before.size else -1
        return -1

    # ---- checkpoints -----------------------------------------------------------------------------

    @property
    def _shared(self) -> dict[str, pl.Callback]:
        """Callbacks that have one state for all runs of a group, by their key in a checkpoint."""
        shared = {"averaging": self.averaging, "callbacks": self.users}
        return {name: callback for name, callback in shared.items() if callback}

    @property
    def _evaluates_again(self) -> bool:
        """Whether training that ends before its last step is evaluated once more at its end.

        A callback may stop it between two evaluations, or before the first: it is scored where it
        stopped.
        """
        settings = self.settings
        if self.module.steps_done >= self.until:
            return False
        is_scored = self.recorder.evaluated == self.module.steps_done
        return not is_scored or settings.eval_test == "best" or settings.predictions == "last"

    def snapshot(self, evaluates_again: bool = False) -> Snapshot:
        """Take a snapshot of the present state of all runs.

        Args:
            evaluates_again: the rows of this step will be written anew.
        """
        runs = self.group.runs
        shared = {name: callback.state_dict() for name, callback in self._shared.items()}
        states = {}
        for i, run in enumerate(runs):
            states[run.hash] = self._run_state(i, shared, evaluates_again)
        diverged = {}
        for i, (step, value) in self.module.diverged.items():
            diverged[runs[i].hash] = (step, float(value))
        return Snapshot(self.module.steps_done, states, diverged)

    def _run_state(
        self, i: int, shared: Mapping[str, Any], evaluates_again: bool
    ) -> dict[str, Any]:
        """Collect the state of run ``i`` that a checkpoint holds."""
        rows = self.recorder.written[i]
        if evaluates_again:
            file = self.group.runs[i].folder / ROW_FILE
            rows = lines_before(file, self.module.steps_done)
        state = self.module.run_state(i)
        state |= {**self._left_out(i, state["state_dict"]), "rows": asdict(rows), **shared}
        predicted = self.predictions and self.predictions.written[i]
        if predicted:
            state["predictions"] = asdict(predicted)
        if self.metrics:
            state["metrics"] = self.metrics.state(i)
        return state

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot: load the states that it holds."""
        states = []
        for i, run in enumerate(self.group.runs):
            states.append(self._whole_state(i, snapshot.runs[run.hash]))
        self.module.load_run_states(states)
        for i, run in enumerate(self.group.runs):
            self.recorder.written[i] = Checksum(**states[i]["rows"])
            if self.predictions and "predictions" in states[i]:
                self.predictions.written[i] = Checksum(**states[i]["predictions"])
            if run.hash in snapshot.diverged:
                self.module.diverged[i] = snapshot.diverged[run.hash]
        self.recorder.evaluated = self._last_evaluated()
        for name, callback in self._shared.items():
            if name in states[0]:  # not in one of a run that was trained without them
                callback.load_state_dict(states[0][name])
        if self.metrics:
            self.metrics.load_states([state.get("metrics") for state in states])


def interruption(error: BaseException) -> KeyboardInterrupt | None:
    """Find what Lightning answered with a ``SystemExit``; return None if a callback raised it."""
    context: BaseException | None = error
    while context is not None:
        if isinstance(context, KeyboardInterrupt):
            return context
        if isinstance(context, SIGTERMException):  # in training with several processes
            return KeyboardInterrupt(STOPS[signal.SIGTERM])
        context = context.__cause__ or context.__context__
    return None


def group_module(group: RunGroup) -> LightningRuns:
    """Build the module that trains a group, freshly initialized."""
    modules = [run.study.module(run.fold) for run in group.runs]
    return StackedRuns(modules) if group.stacked else modules[0]


def group_data(group: RunGroup) -> EnvironmentData:
    """Return the minibatches and eval sets of a group as a data module."""
    data = [run.data for run in group.runs]
    return EnvironmentData.stack(data) if group.stacked else data[0]


@contextmanager
def while_fitting() -> Iterator[None]:
    """Surround ``trainer.fit`` with normal numbers, and turn ``SystemExit`` into what caused it.

    After Ctrl-C or SIGTERM that is ``KeyboardInterrupt``.

    Raises:
        RuntimeError: something else, a callback say, raised ``SystemExit``.
    """
    try:
        with normal_numbers():
            yield
    except SystemExit as stop:
        raise_if_ending()
        interrupted = interruption(stop)
        if interrupted is not None:
            raise KeyboardInterrupt(*interrupted.args) from stop
        text = (
            f"SystemExit({stop.code}) was raised while it trained; set trainer.should_stop to end "
            "a training"
        )
        raise RuntimeError(text).with_traceback(stop.__traceback__) from stop

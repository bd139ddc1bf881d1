"""Train one group from wherever it stands to its final rows. A single run is a group of one."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities.exceptions import SIGTERMException

from dgbench.callbacks.averaged import AveragedScores
from dgbench.callbacks.checkpointer import Checkpointer
from dgbench.callbacks.loggers import Guard
from dgbench.callbacks.metrics import RunMetrics, TrainingMetrics
from dgbench.callbacks.predictions import Predictions
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
from dgbench.training.groups import Group
from dgbench.training.modules import LightningRuns, StackedRuns
from dgbench.training.predicted_again import predicted_run
from dgbench.training.processes import CalmSigterm, Process, make_trainer, normal_numbers
from dgbench.training.run_folder import write_model


class Fit:
    """Trains a group from wherever it stands; its callbacks, and what a checkpoint holds of them.

    Args:
        group: the runs.
        snapshot: state to continue from; None for the beginning.
        finished: hashes of runs that are complete, and computed once more beside the others.
        callbacks: what else is done, by process 0.
        metrics: of each run what is logged beside its rows; None for one that is finished. Empty
            logs nothing.
        safely: what guards the metrics.
        process: which process of a distributed run this is; None trains alone.
        until: step to train to, at which an evaluation falls; None trains to the last.
    """

    def __init__(
        self,
        group: Group,
        snapshot: Snapshot | None = None,
        finished: Collection[str] = (),
        callbacks: Sequence[pl.Callback] = (),
        metrics: Sequence[RunMetrics | None] = (),
        safely: Guard | None = None,
        process: Process | None = None,
        until: int | None = None,
    ) -> None:
        self.group, self.finished, self.others, self.process = group, finished, callbacks, process
        self.study, first = group.runs[0].study, process is None or process.rank == 0
        settings = self.settings = self.study.settings
        self.until = settings.steps if until is None else until
        module = self.module = group_module(group)
        self.data = group_data(group)
        module.training_images = self.data.training_images
        averaging = self.study.averaging()
        self.averaging = AveragedScores(averaging.rule) if averaging else None
        self.final_only = averaging is not None and averaging.rule.final_only
        users = self.study.config["callbacks"]
        named = {name: build(without(users, name, "passive"), name) for name in users}
        self.users = UserCallbacks(named) if named else None
        logged = metrics or [None] * len(group.runs)
        self.recorder = Recorder(self._records(logged, first), self.final_only, settings.eval_test)
        self.predictions = self._predictions()
        self.checkpointer = self._checkpointer() if first else None
        self.metrics = None
        if metrics or self.users:
            self.metrics = TrainingMetrics(
                logged,
                settings,
                safely or Guard(METRICS_FILE),
                lambda: self.checkpointer.seconds_written if self.checkpointer else 0.0,
            )
        self.log = (
            CallbackLog(group.runs[0].folder, logged, lambda: module.steps_done)
            if self.users
            else None
        )
        self.data.one_by_one = self.users is not None
        if snapshot:
            self.restore(snapshot)

    def train(self) -> dict[str, tuple[int, float]]:
        """Train the group to its final rows.

        Returns:
            Step and value of the first loss that was not finite, by run hash, where some runs of a
            stack diverged.

        Raises:
            DivergedError: the losses of all runs stopped being finite.
            ConfigError: the trainer's settings cannot work here.
        """
        settings, module = self.settings, self.module
        done, every = module.steps_done, settings.eval_every
        intervals = -(-self.until // every) - done // every if done < self.until else 0
        trainer = make_trainer(settings, self.callbacks(), intervals, self.process, self.log)
        try:
            with while_fitting():
                trainer.fit(module, datamodule=self.data)
                if (
                    self.final_only or self._evaluates_again or not settings.steps
                ):  # known to be the last evaluation
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
        unfinished = [run.folder for run in self.group.runs if run.hash not in self.finished]
        return [
            *([CalmSigterm()] if self.process else ()),
            self.recorder,
            *([self.predictions] if self.predictions else ()),
            *self.others,
            *([self.metrics] if self.metrics else ()),
            *([self.users, *self.users.callbacks.values()] if self.users else ()),
            *(
                [self.checkpointer, Heartbeat(unfinished, self.settings.steps)]
                if self.checkpointer
                else ()
            ),
            *(
                [self.averaging] if self.averaging else ()
            ),  # puts the live weights back after all that read others
        ]

    def _records(self, metrics: Sequence[RunMetrics | None], first: bool) -> list[RunRecord]:
        """Build the record of each run's rows; if ``first``, write what the models of unfinished
        runs are.
        """
        records = []
        for run, template, logged in zip(self.group.runs, self.module.runs, metrics, strict=True):
            file = None if run.hash in self.finished else run.folder / ROW_FILE
            identity = run.identity(template)
            records.append(
                RunRecord(file, identity, run.data.recipes, [logged.rows] if logged else [])
            )
            if file and first:
                write_model(run, identity)
        return records

    def _predictions(self) -> Predictions | None:
        """Build the callback that writes the predictions of the runs; None where none are asked
        for.
        """
        which = self.settings.predictions
        if which == "none":
            return None
        predicted = []
        for run in self.group.runs:
            file = None if run.hash in self.finished else run.folder / PREDICTION_FILE
            predicted.append(predicted_run(run, file))
        return Predictions(predicted, which, self.recorder)

    def _checkpointer(self) -> Checkpointer:
        group, path = self.group, group_file(self.group)

        def save(trainer: pl.Trainer, pl_module: Any) -> None:
            if self.metrics:
                self.metrics.save()  # what a checkpoint holds the steps of is on disk
            self.snapshot(trainer.should_stop and self._evaluates_again).save(path)
            point_to(group, path)

        best = [None if run.hash in self.finished else best_file(run) for run in group.runs]
        return Checkpointer(save, best, self.recorder, self.settings)

    def _last_evaluated(self) -> int:
        """Find the step of the last rows that stand before the present state; -1 where there are
        none.
        """
        step = self.module.steps_done
        for run, written in zip(self.group.runs, self.recorder.written, strict=True):
            if run.hash not in self.finished:
                before = lines_before(run.folder / ROW_FILE, step)
                return step if written.size > before.size else -1
        return -1

    # ---- checkpoints
    # --------------------------------------------------------------------------------------------

    @property
    def _shared(self) -> dict[str, pl.Callback]:
        """Callbacks that have one state for all runs of a group, by their key in a checkpoint."""
        shared = {"averaging": self.averaging, "callbacks": self.users}
        return {name: callback for name, callback in shared.items() if callback}

    @property
    def _evaluates_again(self) -> bool:
        """Whether training that ends before its last step is evaluated once more, now that this is
        its end.

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
        runs, module, metrics = self.group.runs, self.module, self.metrics
        shared = {name: callback.state_dict() for name, callback in self._shared.items()}

        def state(i: int) -> dict[str, Any]:
            rows = self.recorder.written[i]
            if evaluates_again:
                rows = lines_before(runs[i].folder / ROW_FILE, module.steps_done)
            predicted = self.predictions and self.predictions.written[i]
            extra_state = {"predictions": asdict(predicted)} if predicted else {}
            extra_state |= {"metrics": metrics.state(i)} if metrics else {}
            return {**module.run_state(i), "rows": asdict(rows), **shared, **extra_state}

        return Snapshot(
            step=module.steps_done,
            runs={run.hash: state(i) for i, run in enumerate(runs)},
            diverged={
                runs[i].hash: (step, float(value)) for i, (step, value) in module.diverged.items()
            },
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot: load the states that it holds."""
        states = [snapshot.runs[run.hash] for run in self.group.runs]
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
    """Find what Lightning answered with a ``SystemExit``; None for one that a callback raised."""
    context: BaseException | None = error
    while context is not None:
        if isinstance(context, KeyboardInterrupt):
            return context
        if isinstance(context, SIGTERMException):  # in training with several processes
            return KeyboardInterrupt(STOPS[signal.SIGTERM])
        context = context.__cause__ or context.__context__
    return None


def group_module(group: Group) -> LightningRuns:
    """Build the module that trains a group, freshly initialized."""
    modules = [run.study.module(run.fold) for run in group.runs]
    return StackedRuns(modules) if group.stacked else modules[0]


def group_data(group: Group) -> EnvironmentData:
    """Return the minibatches and eval sets of a group as a data module."""
    data = [run.data for run in group.runs]
    return EnvironmentData.stack(data) if group.stacked else data[0]


@contextmanager
def while_fitting() -> Iterator[None]:
    """Surround ``trainer.fit``: normal numbers, and ``SystemExit`` as ``KeyboardInterrupt`` after
    Ctrl-C or SIGTERM.

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

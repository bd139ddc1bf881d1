"""Training one group from wherever it stands to its final rows. A single run is a group of one."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ProgressBar
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]

from dgbench.callbacks.checkpointer import Checkpointer
from dgbench.callbacks.loggers import Guard
from dgbench.callbacks.metrics import RunMetrics, TrainingMetrics
from dgbench.callbacks.progress import Heartbeat
from dgbench.callbacks.recorder import Recorder, RunRecord
from dgbench.callbacks.users import CallbackLog, UserCallbacks, build_callbacks
from dgbench.data.minibatches import EnvironmentData
from dgbench.errors import ConfigError
from dgbench.plan.settings import TrainerSettings
from dgbench.records.metrics import METRICS_FILE
from dgbench.records.rows import ROW_FILE
from dgbench.training.checkpoints import Snapshot, group_file, point_to
from dgbench.training.groups import Group
from dgbench.training.modules import RunModule, StackedRuns
from dgbench.training.outputs import predictions
from dgbench.training.processes import CalmSigterm, Process, SharedMinibatches
from dgbench.training.run_folder import write_model
from dgbench.training.study import Run, Study

log = logging.getLogger("dgbench")


@dataclass(frozen=True)
class Fit:
    """What a group is trained with.

    Args:
        group: the runs.
        snapshot: state to continue from; None for the beginning.
        finished: hashes of runs that are complete, and computed once more beside the others.
        callbacks: what else is done, by process 0.
        metrics: of each run what is logged beside its rows; None for one that is finished. Empty logs nothing.
        safely: what guards the metrics.
        process: which process of a distributed run this is; None trains alone.
    """

    group: Group
    snapshot: Snapshot | None = None
    finished: Collection[str] = ()
    callbacks: Sequence[pl.Callback] = ()
    metrics: Sequence[RunMetrics | None] = ()
    safely: Guard = field(default_factory=lambda: Guard(METRICS_FILE))
    process: Process | None = None


def fit(job: Fit) -> dict[str, tuple[int, float]]:
    """Train a group to its final rows.

    Returns:
        Step and value of the first loss that was not finite, by run hash, where some runs of a stack diverged.

    Raises:
        DivergedError: the losses of all runs stopped being finite.
        ConfigError: the trainer's settings cannot work here.
    """
    group, study = job.group, job.group.runs[0].study
    module, records = group_module(group), []
    averaging, callbacks_named = study.averaging(), build_callbacks(study.config["callbacks"])
    users = UserCallbacks(callbacks_named) if callbacks_named else None
    final_only = averaging is not None and averaging.rule.final_only
    alone_or_first = job.process is None or job.process.rank == 0
    logged = job.metrics or [None] * len(group.runs)
    for run, template, own in zip(group.runs, module.runs, logged, strict=True):
        rows, identity = None if run.hash in job.finished else run.folder / ROW_FILE, run.identity(template)
        records.append(RunRecord(rows, identity, run.data.recipes, [own.rows] if own else []))
        if rows and alone_or_first:
            write_model(run, identity)
    recorder = Recorder(records, final_only, study.settings.eval_test)
    callbacks: list[pl.Callback] = [recorder, *predictions(group.runs, recorder), *job.callbacks]

    metrics: TrainingMetrics | None = None

    def snapshot() -> Snapshot:
        if metrics:
            metrics.save()  # what a checkpoint holds the steps of is on disk
        return _snapshot(group, module, {"averaging": averaging, "callbacks": users}, metrics)

    if alone_or_first:
        checkpointer = _checkpointer(job, recorder, snapshot)
    if job.metrics or users:
        metrics = _metrics(job, logged, checkpointer if alone_or_first else None)
        callbacks.append(metrics)
    if users:
        callbacks += [users, *callbacks_named.values()]
    if alone_or_first:
        callbacks += [checkpointer, Heartbeat(_unfinished(job), study.settings.steps)]
    if job.process:
        callbacks.insert(0, CalmSigterm())
    if averaging:  # it puts the live weights back, so it comes after all that read the scored ones
        callbacks.append(averaging)
    _restore(job, module, {"averaging": averaging, "callbacks": users}, metrics)
    log = (
        CallbackLog(group.runs[0].folder, [run for run in logged if run], lambda: module.steps_done) if users else None
    )
    trainer = make_trainer(study.settings, callbacks, intervals_left(study, module.steps_done), job.process, log)
    data = group_data(group)
    data.one_by_one = users is not None
    module.training_images = data.training_images
    fit_quietly(trainer, module, data)
    settings = study.settings
    ended = module.steps_done < settings.steps and (settings.eval_test == "best" or settings.predictions == "last")
    if final_only or not settings.steps or ended:  # an evaluation that is known to be the last
        trainer.validate(module, datamodule=data, verbose=False)
    if not study.settings.steps and alone_or_first:
        checkpointer.write(trainer, module)
    return {group.runs[i].hash: how for i, how in module.diverged.items()}


def group_module(group: Group) -> RunModule:
    """The module that trains a group, freshly initialized."""
    modules = [run.study.module(run.fold) for run in group.runs]
    return StackedRuns(modules) if group.stacked else modules[0]


def group_data(group: Group) -> EnvironmentData:
    """Minibatches and eval sets of a group."""
    own = [run.data for run in group.runs]
    return EnvironmentData.stack(own) if group.stacked else own[0]


def _unfinished(job: Fit) -> list[Any]:
    return [run.folder for run in job.group.runs if run.hash not in job.finished]


def _metrics(job: Fit, runs: Sequence[RunMetrics | None], checkpointer: Checkpointer | None) -> TrainingMetrics:
    settings = job.group.runs[0].study.settings
    return TrainingMetrics(
        runs,
        every=settings.log_every,
        steps=settings.steps,
        safely=job.safely,
        writing=lambda: checkpointer.seconds_written if checkpointer else 0.0,
    )


def _restore(
    job: Fit, module: RunModule, stateful: Mapping[str, pl.Callback | None], metrics: TrainingMetrics | None
) -> None:
    if job.snapshot is None:
        return
    runs, snapshot = job.group.runs, job.snapshot
    module.load_run_states([snapshot.runs[run.hash] for run in runs])
    module.diverged.update({i: snapshot.diverged[r.hash] for i, r in enumerate(runs) if r.hash in snapshot.diverged})
    for name, callback in stateful.items():
        if callback and name in snapshot.runs[runs[0].hash]:
            callback.load_state_dict(snapshot.runs[runs[0].hash][name])
    if metrics:
        metrics.load_states([snapshot.runs[run.hash].get("metrics") for run in runs])


def _snapshot(
    group: Group, module: RunModule, stateful: Mapping[str, pl.Callback | None], metrics: TrainingMetrics | None
) -> Snapshot:
    kept = {name: callback.state_dict() for name, callback in stateful.items() if callback}

    def state(i: int) -> dict[str, Any]:
        return {**module.run_state(i), **kept, **({"metrics": metrics.state(i)} if metrics else {})}

    return Snapshot(
        step=module.steps_done,
        runs={run.hash: state(i) for i, run in enumerate(group.runs)},
        diverged={group.runs[i].hash: (step, float(value)) for i, (step, value) in module.diverged.items()},
    )


def _checkpointer(job: Fit, recorder: Recorder, snapshot: Any) -> Checkpointer:
    path, settings = group_file(job.group), job.group.runs[0].study.settings

    def save(trainer: pl.Trainer, pl_module: Any) -> None:
        snapshot().save(path)
        point_to(job.group, path)

    best = [None if run.hash in job.finished else _best_file(run) for run in job.group.runs]
    return Checkpointer(
        save,
        best,
        recorder,
        seconds=settings.checkpoint_seconds,
        steps=settings.steps,
        eval_every=settings.eval_every,
    )


def _best_file(run: Run) -> Any:
    return run.folder / "checkpoints" / "best.ckpt"


def intervals_left(study: Study, step: int) -> int:
    """Evaluation intervals from a step to the end; each is an epoch of Lightning's."""
    every, steps = study.settings.eval_every, study.settings.steps
    return -(-steps // every) - (step // every if step < steps else -(-steps // every))


def fit_quietly(trainer: pl.Trainer, module: pl.LightningModule, data: pl.LightningDataModule) -> None:
    """``trainer.fit``, with Ctrl-C as what it is."""
    try:
        trainer.fit(module, datamodule=data)
    except SystemExit as stop:  # Lightning turns Ctrl-C into an exit
        raise KeyboardInterrupt from stop


def make_trainer(
    settings: TrainerSettings,
    callbacks: Sequence[pl.Callback],
    epochs: int,
    process: Process | None = None,
    logger: Logger | None = None,
) -> pl.Trainer:
    """A quiet trainer on one device; dgbench's own callbacks keep rows, checkpoints and progress.

    Raises:
        ConfigError: Lightning refuses device or precision.
    """
    torch.set_float32_matmul_precision(settings.matmul)
    torch.backends.cudnn.allow_tf32 = settings.matmul != "highest"
    place: Any = process or LightningEnvironment()  # runs are jobs of their own, also inside a SLURM allocation
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*fp16 is not supported.*")  # it would take bf16 instead
            return pl.Trainer(
                accelerator=settings.device,
                devices=process.count if process else 1,
                strategy=SharedMinibatches() if process else "auto",
                use_distributed_sampler=False,
                precision=settings.precision,  # type: ignore[arg-type]
                max_epochs=epochs,
                num_sanity_val_steps=0,
                logger=logger or False,
                log_every_n_steps=settings.log_every,
                enable_checkpointing=False,
                enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in callbacks),
                enable_model_summary=False,
                callbacks=list(callbacks),
                plugins=[place],
            )
    except (MisconfigurationException, ValueError, UserWarning) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{reason} (trainer.device={settings.device}, trainer.devices={settings.devices}, "
            f"trainer.precision={settings.precision})"
        ) from error

"""Training one member from wherever it stands to its final rows."""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.plugins import CheckpointIO
from pytorch_lightning.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]

from dgbench.algorithms.base import Algorithm
from dgbench.callbacks.checkpoint import Checkpoints
from dgbench.callbacks.environment_errors import EnvironmentErrors, Listener
from dgbench.callbacks.heartbeat import Heartbeat
from dgbench.callbacks.progress import StudyProgress
from dgbench.callbacks.status import mark_failed, write_status
from dgbench.callbacks.wandb_log import WandbLog
from dgbench.cli.own_log import own_log
from dgbench.cli.processes import processes
from dgbench.cli.provenance import write_identity
from dgbench.cli.study import Member, Study
from dgbench.errors import ConfigError, DgbenchError, RecordError
from dgbench.records import ROW_FILE
from dgbench.training.distributed import CalmSigterm, Process, SharedMinibatches

log = logging.getLogger("dgbench")


def train_member(study: Study, member: Member, progress: StudyProgress, wandb_log: WandbLog | None) -> bool:
    """Train one fold that is not done; a failure is marked and told, and ends this fold only.

    Returns:
        Whether the member is complete.

    Raises:
        ConfigError: the configuration cannot work.
    """
    progress.fold(member.fold.title)
    with own_log(member.folder):
        try:
            _fit(study, member, progress, wandb_log)
        except ConfigError:
            raise
        except Exception as error:  # whatever broke this fold, the others go on
            reason = failure(error)
            mark_failed(member.folder, reason)
            progress.fold_done(f"FAILED: {reason}")
            return False
    progress.fold_done("done")
    return True


def failure(error: Exception) -> str:
    """What a status mark says of an error; the traceback goes to the logs that are open."""
    log.debug(traceback.format_exc())
    return str(error) if isinstance(error, DgbenchError) else f"{type(error).__name__}: {error}"


def _fit(study: Study, member: Member, progress: StudyProgress, wandb_log: WandbLog | None) -> None:
    module = study.module(member.fold)
    checkpoints = Checkpoints(member.folder / "checkpoints", study.trainer.checkpoint_seconds)
    resume = _checkpoint_to_resume(checkpoints.last)
    identity = study.counted(member, module)
    write_config(study, member)
    write_identity(study, member, resumed=resume is not None, together=1)
    write_status(member.folder, "RUNNING")
    log.debug("%s, %s", identity, f"resumes from {resume}" if resume else "starts")
    if wandb_log:
        open_member_run(wandb_log, study, member)
    complete = False
    try:
        with processes(study.trainer.devices, member.folder, resume) as process:
            listeners = [wandb_log.rows] if wandb_log else []
            heartbeat = Heartbeat([member.folder], study.trainer.steps)
            fit_member(study, member, module, [checkpoints, progress, heartbeat], resume, process, listeners)
        complete = True
    finally:
        if wandb_log:
            wandb_log.finish(failed=not complete)
    write_status(member.folder, "DONE")
    log.debug("done at step %d", int(module.steps_done))


def fit_member(
    study: Study,
    member: Member,
    module: Algorithm,
    callbacks: Sequence[pl.Callback],
    resume: str | None,
    process: Process | None = None,
    listeners: Sequence[Listener] = (),
) -> None:
    """Train a module to its final rows, alone or as one of several processes.

    Args:
        study, member: what to train.
        module: the member's algorithm.
        callbacks: what else is to be done, by process 0.
        resume: checkpoint to go on from.
        process: which of the member's processes this is; None trains alone.
        listeners: who is told of new rows.
    """
    averaging = study.averaging()
    final_only = averaging is not None and averaging.rule.final_only
    identity = study.counted(member, module)
    errors = EnvironmentErrors(
        member.folder / ROW_FILE, identity, member.data.scores, listeners, final_only, study.trainer.eval_test
    )
    # averaging puts the live weights back, so it comes after all that read the scored ones
    calm = [CalmSigterm()] if process else []
    trainer = make_trainer(study, [*calm, errors, *callbacks, *([averaging] if averaging else [])], process=process)
    fit_quietly(trainer, module, member.data, resume)
    if final_only:
        trainer.validate(module, datamodule=member.data, verbose=False)


def write_config(study: Study, member: Member) -> None:
    """Write the member's resolved configuration to its folder."""
    own = OmegaConf.to_yaml(OmegaConf.create({"member": member.fold.key()}))
    (member.folder / "config.yaml").write_text(study.resolved_yaml + own, encoding="utf-8")


def _document(study: Study, member: Member) -> dict[str, Any]:
    return {**OmegaConf.to_container(study.config, resolve=True), "member": member.fold.key()}  # type: ignore[dict-item]


def open_member_run(wandb_log: WandbLog, study: Study, member: Member) -> None:
    """Open the W&B run of a member; its id is the member's hash, so a resumed one goes on."""
    name, job_type = f"{study.folder.name}/fold-{member.fold.name}", f"fold-{member.fold.name}"
    document = {
        **_document(study, member),
        **study.columns(),
        "fold": member.fold.name,
        "held_out": ", ".join(member.fold.held_out),
    }
    wandb_log.start(
        member.folder, member.identity.run, name, job_type, study.folder.name, document, [*study.tags(), "fold"]
    )


def fit_quietly(
    trainer: pl.Trainer, module: pl.LightningModule, data: pl.LightningDataModule, resume: str | None
) -> None:
    """``trainer.fit``, with Ctrl-C as what it is."""
    try:
        trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    except SystemExit as stop:  # Lightning turns Ctrl-C into an exit
        raise KeyboardInterrupt from stop


def make_trainer(
    study: Study,
    callbacks: Sequence[pl.Callback],
    checkpoints: CheckpointIO | None = None,
    process: Process | None = None,
) -> pl.Trainer:
    """A quiet trainer on one device; dgbench's own callbacks keep rows, checkpoints and progress."""
    settings = study.trainer
    torch.set_float32_matmul_precision(settings.matmul)
    torch.backends.cudnn.allow_tf32 = settings.matmul != "highest"
    place: Any = process or LightningEnvironment()  # members are jobs of their own, also inside a SLURM allocation
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*fp16 is not supported.*")  # it would take bf16 instead
            return pl.Trainer(
                accelerator=settings.device,
                devices=process.count if process else 1,
                strategy=SharedMinibatches() if process else "auto",
                use_distributed_sampler=False,
                precision=settings.precision,  # type: ignore[arg-type]
                max_epochs=-(-settings.steps // settings.eval_every),
                num_sanity_val_steps=0,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                callbacks=list(callbacks),
                plugins=[place, *([checkpoints] if checkpoints else [])],
            )
    except (MisconfigurationException, ValueError, UserWarning) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{reason} (trainer.device={settings.device}, trainer.devices={settings.devices}, "
            f"trainer.precision={settings.precision})"
        ) from error


def _checkpoint_to_resume(path: Path) -> str | None:
    if not path.exists():
        return None
    try:
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises whatever its unpickler stumbles over
        raise RecordError(f"{path} is cut short or corrupt; delete it to train this fold from its beginning") from error
    return str(path)

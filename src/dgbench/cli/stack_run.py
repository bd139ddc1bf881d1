"""Training a stack of members from wherever they stand to their final rows."""

from __future__ import annotations

import logging
from typing import Any

import torch

from dgbench.callbacks.heartbeat import Heartbeat
from dgbench.callbacks.progress import StudyProgress
from dgbench.callbacks.stack_files import MemberFiles, StackFiles
from dgbench.callbacks.status import mark_failed, write_status
from dgbench.cli.member import failure, fit_quietly, make_trainer, write_config
from dgbench.cli.own_log import own_log
from dgbench.cli.provenance import write_identity
from dgbench.cli.stacking import Group
from dgbench.data.stacked import StackedData
from dgbench.errors import ConfigError, DivergedError
from dgbench.records import ROW_FILE
from dgbench.training.stack_checkpoint import StackCheckpointIO, save_whole
from dgbench.training.stacked import StackedMembers

log = logging.getLogger("dgbench")


def train_stack(group: Group, progress: StudyProgress) -> dict[str, bool]:
    """Train a group; a member that diverges is marked and told, and the others go on.

    When the device runs out of memory, the group is halved and goes on from its last checkpoints.

    Returns:
        Whether each member is complete, by run hash.

    Raises:
        ConfigError: the configuration cannot work.
    """
    progress.fold(f"{len(group.members)} members together", len(group.members))
    with own_log(*(member.folder for _, member in group.members)):
        try:
            diverged = _fit(group, progress)
        except ConfigError:
            raise
        except Exception as error:  # whatever broke this stack, other groups go on
            if not isinstance(error, torch.OutOfMemoryError) or len(group.members) == 1:
                return _failed(group, failure(error), progress)
            log.warning("out of memory with %d members together, going on with half of them", len(group.members))
            diverged = None
    if diverged is None:
        first, second = group.halves()
        return {**train_stack(first, progress), **train_stack(second, progress)}
    complete = {}
    for i, (study, member) in enumerate(group.members):
        failed = diverged.get(i)
        write_status(member.folder, f"FAILED {DivergedError(*failed)}" if failed else "DONE")
        progress.fold_done(
            f"{study.folder.name} fold {member.fold.name} "
            + (f"FAILED: {DivergedError(*failed)}" if failed else "done")
        )
        complete[member.identity.run] = not failed
    return complete


def _failed(group: Group, reason: str, progress: StudyProgress) -> dict[str, bool]:
    for _, member in group.members:
        mark_failed(member.folder, reason)
        progress.fold_done(f"FAILED: {reason}")
    return {member.identity.run: False for _, member in group.members}


def _fit(group: Group, progress: StudyProgress) -> dict[int, tuple[int, float]]:
    study = group.members[0][0]
    stack = StackedMembers(group.modules, group.record)
    resumed = stack.steps_done > 0
    log.debug("%d members train together, from step %d on", stack.size, stack.steps_done)
    files = []
    for (own, member), module in zip(group.members, group.modules, strict=True):
        member.folder.mkdir(parents=True, exist_ok=True)
        write_config(own, member)
        write_identity(own, member, resumed=resumed, together=stack.size)
        write_status(member.folder, "RUNNING")
        files.append(
            MemberFiles(
                member.folder / ROW_FILE,
                member.checkpoint.with_name("best.ckpt"),
                own.counted(member, module),
                member.data.scores,
            )
        )
    checkpoints = StackCheckpointIO(stack, [member.checkpoint for _, member in group.members])
    rows = StackFiles(files, study.trainer.checkpoint_seconds, save_whole, study.trainer.eval_test)
    heartbeat = Heartbeat([member.folder for _, member in group.members], study.trainer.steps)
    trainer = make_trainer(study, [rows, progress, heartbeat], checkpoints)
    data = StackedData([member.data for _, member in group.members])
    resume: Any = "every member's last.ckpt" if resumed else None
    fit_quietly(trainer, stack, data, resume)
    return stack.diverged

"""Training everything that a job has planned."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from omegaconf import DictConfig

from dgbench.callbacks.progress import StudyProgress
from dgbench.callbacks.status import read_status
from dgbench.callbacks.wandb_log import WandbLog
from dgbench.cli.member import open_member_run, train_member
from dgbench.cli.stack_run import train_stack
from dgbench.cli.stacking import plan_groups
from dgbench.cli.study import Member, Study
from dgbench.records import ROW_FILE, read_rows, row_of


def train_all(
    studies: Sequence[Study], execution: DictConfig, progress: StudyProgress, wandb_log: WandbLog | None
) -> dict[str, bool]:
    """Train every member that is not done, in the groups that ``execution`` asks for.

    Returns:
        Whether each member is complete, by run hash.

    Raises:
        ConfigError: the configuration cannot work.
    """
    complete: dict[str, bool] = {}
    for study in studies:
        for member in study.members:
            if read_status(member.folder) == "DONE":
                progress.fold(member.fold.title)
                progress.fold_done("was done before")
                complete[member.identity.run] = True
    for group in plan_groups(studies, execution):
        if group.stacked:
            complete.update(train_stack(group, progress))
            if wandb_log:
                for study, member in group.members:
                    _tell(wandb_log, study, member, complete[member.identity.run])
        else:
            for study, member in group.members:
                complete[member.identity.run] = train_member(study, member, progress, wandb_log)
    return complete


def _tell(wandb_log: WandbLog, study: Study, member: Member, complete: bool) -> None:
    """The W&B run of a member that trained in a stack, from its rows; W&B follows one run at a time."""
    open_member_run(wandb_log, study, member)
    file = member.folder / ROW_FILE
    rows = [row_of(flat) for flat in read_rows(file)[0]] if file.exists() else []
    for step, evaluation in groupby(rows, key=lambda row: row.step):
        wandb_log.rows(step, list(evaluation))
    wandb_log.finish(failed=not complete)

"""Training everything that a job has planned and no other process trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

from omegaconf import DictConfig

from dgbench.callbacks.claims import Claims, claimant
from dgbench.callbacks.progress import StudyProgress
from dgbench.callbacks.status import read_status
from dgbench.callbacks.wandb_log import WandbLog
from dgbench.cli.member import open_member_run, train_member
from dgbench.cli.stack_run import train_stack
from dgbench.cli.stacking import Group, plan_groups
from dgbench.cli.study import Member, Study
from dgbench.errors import ConfigError
from dgbench.records import ROW_FILE, read_rows, row_of

RETRIES = ("all", "failed", "none")


@dataclass
class Ends:
    """How the members of a job ended, by run hash.

    Args:
        complete: whether a member is complete; failed ones are not.
        left: why this job left a member alone that is neither complete nor failed.
    """

    complete: dict[str, bool] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __or__(self, more: Ends) -> Ends:
        return Ends({**self.complete, **more.complete}, {**self.left, **more.left})


def train_all(
    studies: Sequence[Study],
    execution: DictConfig,
    progress: StudyProgress,
    wandb_log: WandbLog | None,
    retry: str = "all",
) -> Ends:
    """Train every member that is not done, in the groups that ``execution`` asks for.

    Members that another process trains are left to it; once the rest is through, those that have become free are
    trained after all.

    Args:
        studies: what the job has planned.
        execution: which members train together.
        progress: what is told.
        wandb_log: where it is logged besides.
        retry: ``all`` trains whatever is not done, ``failed`` only what failed before, ``none`` what did not fail.

    Raises:
        ConfigError: the configuration cannot work.
    """
    if retry not in RETRIES:
        raise ConfigError(f"retry={retry} is unknown; choose {', '.join(RETRIES)}")
    ends = Ends()
    open_members = dict(_asked_for(studies, retry, progress, ends))
    moved = True
    while open_members and moved:
        moved = False
        stamps = {run: _stamp(member) for run, (_, member) in open_members.items()}
        for group in plan_groups(list(open_members.values()), execution):
            with Claims() as claims:
                mine = []
                for i, (_, member) in enumerate(group.members):
                    run = member.identity.run
                    if not claims.take(member.folder):
                        if run not in ends.left:
                            ends.left[run] = f"trained by {claimant(member.folder) or 'another process'}"
                            progress.note(f"{member.folder} is {ends.left[run]}; left to it")
                    elif _stamp(member) != stamps[run]:
                        moved = True  # another process has been at it since: plan it afresh
                    else:
                        mine.append(i)
                if mine:
                    moved = True
                    _train(group.only(mine), progress, wandb_log, ends)
        for run, (_, member) in list(open_members.items()):
            if run not in ends.complete and read_status(member.folder) == "DONE":  # by another process
                progress.fold_done(f"{member.folder.name} was done by another process")
                ends.complete[run] = True
            if run in ends.complete:
                ends.left.pop(run, None)
                del open_members[run]
    if wandb_log:
        for study in studies:
            for member in study.members:  # done without W&B, or killed before it was told
                if ends.complete.get(member.identity.run) and not wandb_log.knows(member.folder):
                    _tell(wandb_log, study, member, complete=True)
    return ends


def _asked_for(
    studies: Sequence[Study], retry: str, progress: StudyProgress, ends: Ends
) -> Iterator[tuple[str, tuple[Study, Member]]]:
    for study in studies:
        for member in study.members:
            mark, run = read_status(member.folder), member.identity.run
            failed = mark.startswith("FAILED")
            if mark == "DONE" or (failed and retry == "none"):
                progress.fold(member.fold.title)
                progress.fold_done("failed before; retry=failed trains it again" if failed else "was done before")
                ends.complete[run] = not failed
            elif retry == "failed" and not failed:
                ends.left[run] = "not failed (retry=failed)"
            else:
                yield run, (study, member)


def _stamp(member: Member) -> tuple[str, int]:
    """Changes when somebody trains a member."""
    written = 0
    with suppress(OSError):
        written = member.checkpoint.stat().st_mtime_ns
    return read_status(member.folder), written


def _train(group: Group, progress: StudyProgress, wandb_log: WandbLog | None, ends: Ends) -> None:
    if not group.stacked:
        for study, member in group.members:
            ends.complete[member.identity.run] = train_member(study, member, progress, wandb_log)
        return
    ends.complete.update(train_stack(group, progress))
    if wandb_log:
        for study, member in group.members:
            _tell(wandb_log, study, member, ends.complete[member.identity.run])


def _tell(wandb_log: WandbLog, study: Study, member: Member, complete: bool) -> None:
    """The W&B run of a member that trained without it, from its rows; W&B follows one run at a time."""
    open_member_run(wandb_log, study, member)
    file = member.folder / ROW_FILE
    rows = [row_of(flat) for flat in read_rows(file)[0]] if file.exists() else []
    for step, evaluation in groupby(rows, key=lambda row: row.step):
        wandb_log.rows(step, list(evaluation))
    wandb_log.finish(failed=not complete)

"""``python train.py``: train every fold of a study, then print its measures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dgbench.cli.entry import hydra_main, sign_of_life

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig

    from dgbench.cli.ended import Ended
    from dgbench.cli.searches import Search
    from dgbench.training.job import Job
    from dgbench.training.study import Study


@hydra_main(config_name="train")
def train(config: DictConfig) -> None:
    """Train what is unfinished, skip what is done."""
    from dgbench.training.job import Job

    run_job(Job.of_hydra(config)).raise_failed()


def run_job(job: Job) -> Ended:
    """Plan, train and summarize the studies of a command; everything that needs no torch is checked before it loads.

    Raises:
        ConfigError, DataError, WeightsError: the configuration cannot work; nothing was started.
    """
    from dgbench.cli.ended import Ended
    from dgbench.errors import ConfigError
    from dgbench.sweeps.plan import asks_to_clock, plan_job
    from dgbench.training.checked_values import check_values
    from dgbench.training.job import planned_studies

    config = job.config
    check_values(job.values())
    if job.prints_plan and not config.wait:
        raise ConfigError("wait=false submits a sweep to a queue; add -m and hydra/launcher=slurm, or leave it out")
    if config.grid or config.hparams.get("scheme") is not None:  # hundreds of studies take seconds to plan
        sign_of_life("planning the studies ...")
    if config.plan:
        plan_job(job, clock=asks_to_clock(config.plan), starts=False)
        return Ended()
    planned = planned_studies(job)
    sign_of_life(f"{config.dataset.name}, {config.algorithm.name}, seed {config.seed}: starting ...")
    if len(planned) > 1 and job.prints_plan:
        plan_job(job, clock=True, starts=True)

    from dgbench.callbacks.progress import StudyProgress
    from dgbench.cli.searches import chosen_again, searches
    from dgbench.cli.summary import summarize
    from dgbench.training.building import build, build_logger
    from dgbench.training.fold_plan import selection_note
    from dgbench.training.planned import keep_plan, remember
    from dgbench.training.prepare import prepare_process
    from dgbench.training.study import studies_of
    from dgbench.training.train_runs import train_runs

    prepare_process()
    logger, selection = build_logger(config), build(config, "selection")
    if note := selection_note(selection, [fold for study in planned for fold in study.folds]):
        print(f"note: {note}", file=sys.stderr)
    studies = studies_of(planned)
    keep_plan(studies)
    found = searches(studies)
    progress = StudyProgress(_runs(studies, found), studies[0].settings.steps, _label(studies))
    try:
        how = job.plain("execution"), progress, logger, config.retry, job.chooses_threads
        outcomes = train_runs(studies, *how)
        again = [study for search in found for study in chosen_again(search)]
        keep_plan(again)
        outcomes |= train_runs(again, *how)
    finally:
        progress.close()
    remember(job, [*studies, *again])
    return summarize([*studies, *again], outcomes, selection, logger, found)


def _runs(studies: Sequence[Study], found: Sequence[Search]) -> int:
    """Runs that are planned, with those that searches train once they have chosen."""
    return sum(len(study.runs) for study in studies) + sum(search.repeats for search in found)


def _label(studies: Sequence[Study]) -> str:
    return studies[0].spec.algorithm if len(studies) == 1 else f"{len(studies)} studies"

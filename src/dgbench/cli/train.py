"""``python train.py``: train every fold of a study, then print its measures."""

from __future__ import annotations

import logging
import sys
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from dgbench.cli.entry import hydra_main, sign_of_life
from dgbench.errors import ConfigError
from dgbench.validation import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig

    from dgbench.data.description import DatasetInfo
    from dgbench.plan.studies import Command, CommandEnd, PlannedStudy
    from dgbench.training.study import ReadyStudy

OWN_SWEEPER = "studies"  #: plans all jobs, and optimizes nothing

log = logging.getLogger("dgbench")


@hydra_main(config_name="train")
def train(config: DictConfig) -> float | None:
    """Train what is unfinished, skip what is done.

    Returns:
        The validation error of training environments, for a sweeper that optimizes; None to
        dgbench's own.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from dgbench.plan.studies import Command

    sweeper = str(HydraConfig.get().runtime.choices.get("hydra/sweeper"))
    optimizes = HydraConfig.get().mode is RunMode.MULTIRUN and sweeper != OWN_SWEEPER
    if optimizes and config.plan:
        raise ConfigError(
            f"plan={shown(config.plan)} has no trials of hydra/sweeper={sweeper} to list; leave "
            "one of them out"
        )
    ended = run_command(Command.of_hydra(config))
    ended.raise_failed()
    if not optimizes:
        return None
    from dgbench.cli.objective import objective
    from dgbench.plan.building import build

    return objective(ended.folders, build(config, "selection"))


def nothing_left(planned: Sequence[PlannedStudy], config: DictConfig) -> bool:
    """Return whether these studies are finished, so that their tables can be printed without torch.

    False for searches, which train again what they chose, and where a logger or a file of
    predictions may lack them.
    """
    from dgbench.records.status import DONE, is_done, read_status

    asks_more = config.logger.get("_target_") is not None or config.trainer.predictions != "none"
    if asks_more or any(study.search for study in planned):
        return False
    folders = []
    for study in planned:
        folders += [study.run_folder(fold) for fold in study.folds]
    # first the status of each, which is read faster than whether its rows are whole
    if any(read_status(folder).word != DONE for folder in folders):
        return False
    return all(is_done(folder) for folder in folders)


def tell_dataset(info: DatasetInfo) -> None:
    """Print what was understood of a dataset."""
    from dgbench.data.understanding import lines_of_dataset

    for line in lines_of_dataset(info):
        sign_of_life(line)


def run_command(command: Command) -> CommandEnd:
    """Plan, train and summarize the studies of a command.

    Everything that needs no torch is checked before torch loads.

    Raises:
        ConfigError, DataError, WeightsError: the configuration cannot work; nothing was started.
    """
    from dgbench.plan.measures import check_own_measures
    from dgbench.plan.settings import check_configuration
    from dgbench.plan.studies import CommandEnd, planned_studies
    from dgbench.sweeps.plan import Judged, print_command_plan

    config = command.config
    check_configuration(command.values())
    check_own_measures()
    command.check_words(log.warning)
    if config.grid or config.hparams.get("scheme") is not None:
        sign_of_life("planning the studies ...")  # hundreds take seconds
    if config.plan:
        print_command_plan(command, starts=False)
        return CommandEnd()
    planned = planned_studies(command)
    if nothing_left(planned, config):
        from dgbench.cli.outcome import print_finished
        from dgbench.plan.building import build

        n_runs = sum(len(study.folds) for study in planned)
        sign_of_life(f"nothing to do: all {n_runs} runs are done")
        return print_finished(planned, build(config, "selection"))
    sign_of_life(
        f"{config.dataset.name}, {config.algorithm.name}, seed {config.seed}: starting ..."
    )
    if len(planned) > 1 and command.prints_plan:
        print_command_plan(command, starts=True)
    elif command.prints_plan:
        # refuses before Lightning is imported, which takes seconds
        Judged(remembers=True).add(planned[0])
    return _train(command, planned)


def _train(command: Command, planned: Sequence[PlannedStudy]) -> CommandEnd:
    """Train what is left of studies that were planned, and summarize them.

    Raises:
        ConfigError, DataError, WeightsError: something cannot work that only torch can judge.
    """
    from dgbench.callbacks.loggers import build_logger
    from dgbench.callbacks.progress import StudyProgress
    from dgbench.cli.halving import rung_ends, survivors
    from dgbench.cli.outcome import chosen_again, runs_of, searches_of, summarize
    from dgbench.plan.building import build
    from dgbench.plan.folds import selection_note
    from dgbench.records.files import check_writable
    from dgbench.training.processes import prepare_process
    from dgbench.training.study import studies_of
    from dgbench.training.train_runs import RunOutcomes, train_runs

    config = command.config
    prepare_process()
    logger = build_logger(config)
    selection = build(config, "selection")
    folds = list(chain.from_iterable(study.folds for study in planned))
    note = selection_note(selection, folds, planned[0].folder.parent)
    if note:
        print(f"note: {note}", file=sys.stderr)
    for folder in {study.folder for study in planned}:
        check_writable(folder)
    says_dataset = len(planned) == 1 and command.prints_plan  # the plan of several has said it
    studies = studies_of(planned, tell_dataset if says_dataset else None)
    cautions = chain.from_iterable(study.cautions() for study in studies)
    for caution in dict.fromkeys(cautions):
        log.warning(caution)
    searches = searches_of(studies)
    n_runs = sum(len(study.runs) for study in studies) + sum(search.repeats for search in searches)
    label = studies[0].spec.algorithm if len(studies) == 1 else f"{len(studies)} studies"
    progress = StudyProgress(n_runs, studies[0].settings.steps, label)
    try:
        trained = partial(
            train_runs,
            execution=command.values()["execution"],
            progress=progress,
            logger=logger,
            retry=config.retry,
            chooses_threads=command.chooses_threads,
        )
        outcomes = RunOutcomes()
        going = studies
        for end in rung_ends(searches):
            outcomes |= trained(going, until=end)
            going = survivors(going, searches, end, progress)
        outcomes |= trained(going)
        repeats: list[ReadyStudy] = []
        for search in searches:
            repeats += chosen_again(search)
        outcomes |= trained(repeats)
    finally:
        progress.close()
    ended = [*(going or studies), *repeats]
    command.place().record_end([run.folder for run in runs_of(ended)])
    return summarize(ended, outcomes, selection, logger, searches)

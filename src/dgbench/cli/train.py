"""``python train.py``: train every fold of a study, then print its measures."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from dgbench.cli.entry import hydra_main, sign_of_life
from dgbench.errors import ConfigError
from dgbench.validation import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig

    from dgbench.data.description import DatasetInfo
    from dgbench.plan.studies import Command, CommandEnd, PlannedStudy

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
    folders = [study.run_folder(fold) for study in planned for fold in study.folds]
    return all(read_status(folder).word == DONE for folder in folders) and all(
        map(is_done, folders)
    )


def tell_dataset(info: DatasetInfo) -> None:
    """Say what was understood of a dataset."""
    from dgbench.data.understanding import lines_of_dataset

    for line in lines_of_dataset(info):
        sign_of_life(line)


def run_command(command: Command) -> CommandEnd:
    """Plan, train and summarize the studies of a command; everything that needs no torch is checked
    before it loads.

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
    if (
        config.grid or config.hparams.get("scheme") is not None
    ):  # hundreds of studies take seconds to plan
        sign_of_life("planning the studies ...")
    if config.plan:
        print_command_plan(command, starts=False)
        return CommandEnd()
    planned = planned_studies(command)
    if nothing_left(planned, config):
        from dgbench.cli.outcome import print_finished
        from dgbench.plan.building import build

        sign_of_life(
            f"nothing to do: all {sum(len(study.folds) for study in planned)} runs are done"
        )
        return print_finished(planned, build(config, "selection"))
    sign_of_life(
        f"{config.dataset.name}, {config.algorithm.name}, seed {config.seed}: starting ..."
    )
    if len(planned) > 1 and command.prints_plan:
        print_command_plan(command, starts=True)
    elif command.prints_plan:
        # refuses before Lightning is imported, which takes seconds
        Judged(remembers=True).add(planned[0])

    from dgbench.callbacks.loggers import build_logger
    from dgbench.callbacks.progress import StudyProgress
    from dgbench.cli.halving import rung_ends, survivors
    from dgbench.cli.outcome import chosen_again, searches_of, summarize
    from dgbench.plan.building import build
    from dgbench.plan.folds import selection_note
    from dgbench.records.files import check_writable
    from dgbench.training.processes import prepare_process
    from dgbench.training.study import studies_of
    from dgbench.training.train_runs import RunOutcomes, train_runs

    prepare_process()
    logger, selection = build_logger(config), build(config, "selection")
    folds = [fold for study in planned for fold in study.folds]
    if note := selection_note(selection, folds, planned[0].folder.parent):
        print(f"note: {note}", file=sys.stderr)
    for folder in {study.folder for study in planned}:
        check_writable(folder)
    says_dataset = len(planned) == 1 and command.prints_plan  # the plan of several has said it
    studies = studies_of(planned, tell_dataset if says_dataset else None)
    for caution in dict.fromkeys(line for study in studies for line in study.cautions()):
        log.warning(caution)
    searches = searches_of(studies)
    n_runs = sum(len(study.runs) for study in studies) + sum(search.repeats for search in searches)
    label = studies[0].spec.algorithm if len(studies) == 1 else f"{len(studies)} studies"
    progress = StudyProgress(n_runs, studies[0].settings.steps, label)
    try:
        arguments = (
            command.values()["execution"],
            progress,
            logger,
            config.retry,
            command.chooses_threads,
        )
        outcomes, going = RunOutcomes(), studies
        for end in rung_ends(searches):
            outcomes |= train_runs(going, *arguments, until=end)
            going = survivors(going, searches, end, progress)
        outcomes |= train_runs(going, *arguments)
        repeats = [study for search in searches for study in chosen_again(search)]
        outcomes |= train_runs(repeats, *arguments)
    finally:
        progress.close()
    ended = [*(going or studies), *repeats]
    command.place().record_end([run.folder for study in ended for run in study.runs])
    return summarize(ended, outcomes, selection, logger, searches)

"""What follows training.

The chosen draws of a search are trained again; studies, searches and sweeps are summed up.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from dgbench.analysis.selection import Selection, describe
from dgbench.cli.closing import study_table, sweep_table
from dgbench.cli.logged import print_logged, validation_errors
from dgbench.errors import DgbenchError
from dgbench.plan.building import build
from dgbench.plan.measures import choose
from dgbench.plan.report_line import selecting_report_line
from dgbench.plan.search import Scheme
from dgbench.plan.studies import MOST_SHOWN_WHOLE, CommandEnd, PlannedSearch, PlannedStudy
from dgbench.records.files import write_whole
from dgbench.records.locks import exclusive
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.records.spec import code_version
from dgbench.records.status import FAILED, is_done, is_settled, read_status
from dgbench.reports.choices import Choice, choices, choices_table
from dgbench.reports.missing import fold_ranges
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.render.formats import plain_table
from dgbench.reports.studies import Study as Evaluated
from dgbench.reports.studies import evaluate_study
from dgbench.reports.tables import percent

if TYPE_CHECKING:
    from dgbench.callbacks.loggers import MetricsLogger
    from dgbench.callbacks.wandb_log import WandbLog
    from dgbench.training.study import ReadyRun, ReadyStudy
    from dgbench.training.train_runs import RunOutcomes

CHOICE_FILE = "search.json"
SPELLED = 8  # more runs left alone than this are only counted
MOST_RUNS = 5000  # of which the table of a sweep is made within seconds; a report takes more

log = logging.getLogger("dgbench")


@dataclass
class Search:
    """The studies of one search."""

    planned: PlannedSearch  #: how its job names it
    studies: list[ReadyStudy]  #: one for every draw and trial
    #: those that train the chosen draws with more seeds, once there is a choice
    again: list[ReadyStudy] = field(default_factory=list)

    @property
    def scheme(self) -> Scheme:
        """How the search is trained."""
        return self.planned.scheme

    @property
    def repeats(self) -> int:
        """Number of runs that train once a draw is chosen."""
        return self.scheme.repeats * len(self.studies[0].runs)


def searches_of(studies: Sequence[ReadyStudy]) -> list[Search]:
    """Collect the searches among the studies of a job."""
    by_plan: dict[PlannedSearch, Search] = {}
    for study in studies:
        planned = study.planned.search
        if planned:
            by_plan.setdefault(planned, Search(planned, [])).studies.append(study)
    return list(by_plan.values())


def chosen_again(search: Search) -> list[ReadyStudy]:
    """Plan the studies that train the chosen draw of every fold with more seeds.

    There are none before the search is complete. A run that diverged is complete: it lost. The
    choice is kept in :data:`CHOICE_FILE` with all candidates.
    """
    from dgbench.training.study import ReadyStudy

    if not search.scheme.repeats or not _complete(search):
        return []
    chosen = choices_of(search)
    _keep(search, chosen)
    first = search.studies[0]
    for draw in dict.fromkeys(choice.draw for choice in chosen):
        folds = {choice.fold for choice in chosen if choice.draw == draw}
        for settings in search.scheme.again(search.planned.base, draw):
            planned = search.planned.study(settings)
            planned = replace(planned, folds=[fold for fold in planned.folds if fold.name in folds])
            is_shared = planned.dataset is first.planned.dataset
            search.again.append(ReadyStudy(planned, first.source if is_shared else None))
    return search.again


def runs_of(studies: Iterable[ReadyStudy]) -> list[ReadyRun]:
    """List the runs of studies, study by study."""
    runs = []
    for study in studies:
        runs += study.runs
    return runs


def choices_of(search: Search) -> list[Choice]:
    """Select the models that count: the chosen draw of every trial and fold, and its repeats."""
    runs = runs_of([*search.studies, *search.again])
    folders = [run.folder for run in runs if run.folder.is_dir()]
    if not folders:
        return []
    return choices(select_runs(collect(folders), search.scheme.chosen_by))


def _complete(search: Search) -> bool:
    waiting = {}
    for study in search.studies:
        for run in study.runs:
            if not is_settled(run.folder):
                waiting[run.folder] = str(read_status(run.folder)) or "not started"
    if waiting:
        log.warning(
            (
                "the search of %s is not complete: %d models to train (e.g. %s: %s); the same "
                "command continues and then trains the chosen draw again"
            ),
            search.studies[0].spec.algorithm,
            len(waiting),
            *next(iter(waiting.items())),
        )
    return not waiting


def _keep(search: Search, chosen: Sequence[Choice]) -> None:
    """Write the choice of these folds.

    The choices of other folds, which another job may be writing, stay.
    """
    # beside the rows of the default set, which the search may leave out
    file = (
        search.planned.study({"hparams.draw": 0, "hparams.trial": 0, **search.planned.base}).folder
        / CHOICE_FILE
    )
    first = search.studies[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(file.with_name(f".{CHOICE_FILE}.lock")):
        kept_folds: dict[str, Any] = json.loads(file.read_text())["folds"] if file.is_file() else {}
        document = {
            "algorithm": first.spec.algorithm,
            "dataset": first.info.name,
            "space": first.spec.space,
            "selection": search.scheme.chosen_by.name,
            "code": code_version(),
            "folds": {**kept_folds, **{choice.fold: asdict(choice) for choice in chosen}},
        }
        write_whole(file, json.dumps(document, indent=1) + "\n")


def summarize(
    studies: Sequence[ReadyStudy],
    outcomes: RunOutcomes,
    selection: Selection,
    logger: MetricsLogger | None,
    searches: Sequence[Search],
) -> CommandEnd:
    """Print the summary of every study or search, and send the measures of studies to W&B.

    There a study is a run of its own. Runs that this job left alone are named last.
    """
    from dgbench.callbacks.wandb_log import WandbLog

    failed = []
    ignored = []
    guessing = []
    wandb_log = logger if isinstance(logger, WandbLog) else None
    for study in studies:
        skipped = {}
        broken = {}
        for run in study.runs:
            if run.hash in outcomes.left:
                skipped[run.fold.name] = outcomes.left[run.hash]
            if outcomes.complete.get(run.hash) is False:
                broken[run.fold.name] = _reason(run.folder)
        rows = rows_of(study.planned)
        _summarize(
            study,
            rows,
            {**broken, **skipped},
            selection,
            wandb_log,
            brief=len(studies) > MOST_SHOWN_WHOLE,
        )
        guesses = [_guesses(run, rows) for run in study.runs]
        guessing += [text for text in guesses if text]
        if broken:
            failed.append(f"fold {fold_ranges(list(broken))} of {study.folder.name}")
        for fold, reason in skipped.items():
            ignored.append(f"fold {fold} of {study.folder.name}: {reason}")
    _print_left_alone(ignored)
    if guessing:
        n_runs = len(runs_of(studies))
        log.warning(
            "no better than guessing: %d of %d models, e.g. %s", len(guessing), n_runs, guessing[0]
        )
    for search in searches:
        _print_choices(search)
    folders: list[Path] = []
    for study in studies:
        folders.append(study.folder)
        folders += [run.folder for run in study.runs]
    common = folders[0] if len(studies) == 1 else folders[0].parent
    print_logged(studies[0].config["logger"], folders, common)
    return CommandEnd([run.folder for run in runs_of(studies)], failed)


def _print_left_alone(ignored: Sequence[str]) -> None:
    """Print which folds this job left to others, and why; only the first few are spelled out."""
    if not ignored:
        return
    more = "; ..." if len(ignored) > SPELLED else ""
    print(f"left alone ({len(ignored)}): {'; '.join(ignored[:SPELLED])}{more}")


def _print_choices(search: Search) -> None:
    """Print which models a search chose, and where its rows are."""
    chosen = choices_of(search)
    if chosen:
        table = choices_table(chosen)
        title = f"{table.title} ({describe(search.scheme.chosen_by)})"
        print(plain_table(table, title))
    print(f"rows: {search.studies[0].folder.parent}")


def _reason(folder: Path) -> str:
    """Format what a run's status says, in the form ``failed: out of memory``."""
    status = read_status(folder)
    return f"{status.word.lower() or 'failed'}{f': {status.reason}' if status.reason else ''}"


def _guesses(run: ReadyRun, rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe a run that is no better at its end than always answering one class.

    A run is better if it is so by one standard error, on the validation images of the environments
    that it trained on; the text is empty then.
    """
    val = [
        row
        for row in rows
        if row["fold"] == run.fold.name and row["subset"] == "val" and not row["env_held_out"]
    ]
    last = [row for row in val if row["step"] == val[-1]["step"]]
    subsets = [run.data.environments.table.subset(row["env"], "val") for row in last]
    if not subsets:
        return ""
    labels = run.data.environments.catalog.labels[np.concatenate(subsets)]
    chance = 1 - np.bincount(labels).max() / len(labels)
    error = sum(row["wrong"] for row in last) / sum(row["seen"] for row in last)
    if not chance or error < chance - (chance * (1 - chance) / len(labels)) ** 0.5:
        return ""
    return (
        f"{run.title}: error {percent(error)} % on validation images of its training "
        f"environments, where the most frequent class alone gives {percent(chance)} %; look at "
        "the labels, hparams.lr and trainer.steps"
    )


def _summarize(
    study: ReadyStudy,
    rows: Sequence[Mapping[str, Any]],
    unusable: Mapping[str, str],
    selection: Selection,
    wandb_log: WandbLog | None,
    brief: bool,
) -> None:
    print_study(study.planned, rows, unusable, selection, brief)
    if rows and wandb_log:
        from dgbench.callbacks.wandb_log import StudyResults, log_study

        evaluated = evaluate_study(rows, selection, unusable)
        validation = validation_errors(rows, evaluated.steps)
        summary: dict[str, float | str] = {
            **_measures(evaluated),
            **validation,
            "selection": selection.name,
        }
        results = StudyResults(evaluated.held_out, evaluated.everywhere, summary)
        failed = any(reason.startswith("failed") for reason in unusable.values())
        log_study(wandb_log, study.logged_as(selection.name), results, failed)


def rows_of(study: PlannedStudy) -> list[dict[str, Any]]:
    """Read the rows of all folds of a study; warn of lines that cannot be read."""
    rows: list[dict[str, Any]] = []
    for file in (study.run_folder(fold) / ROW_FILE for fold in study.folds):
        whole, torn = read_rows(file) if file.exists() else ([], [])
        rows += whole
        for problem in torn:
            log.warning("%s line %d dropped: %s", problem.file, problem.line, problem.reason)
    return rows


def print_study(
    study: PlannedStudy,
    rows: Sequence[Mapping[str, Any]],
    unusable: Mapping[str, str],
    selection: Selection,
    brief: bool,
) -> None:
    """Print the table of a study, and where its rows are.

    Nothing is printed for a study of a search, which has one table for all.

    Args:
        study: that was trained, now or before.
        rows: of it.
        unusable: fold -> why its errors must not be used.
        selection: of the step.
        brief: print its measures in one line.
    """
    if study.search is not None:
        return
    if brief:
        values = _measures(evaluate_study(rows, selection, unusable)) if rows else {}
        shown = ", ".join(f"{name} {percent(value)} %" for name, value in values.items())
        print(f"{study.folder.name}: {shown}")
    else:
        if rows:
            print(study_table(rows, selection, unusable))
        print(f"rows: {study.folder}")


def _measures(study: Evaluated) -> dict[str, float]:
    """Return the measures that a study has by name, as fractions."""
    names = [measure.name for measure in choose().of_runs]
    return {name: study.measures.values[name] for name in names if name in study.measures.values}


def print_finished(studies: Sequence[PlannedStudy], selection: Selection) -> CommandEnd:
    """Print the tables of studies of which nothing is left to train."""
    for study in studies:
        print_study(study, rows_of(study), {}, selection, brief=len(studies) > MOST_SHOWN_WHOLE)
    folders = []
    for study in studies:
        folders += [study.run_folder(fold) for fold in study.folds]
    return CommandEnd(folders)


def print_sweep_end(n_jobs: int, done: int, runs: Sequence[Path], config: DictConfig) -> None:
    """Print how many jobs and models of a sweep are done, and what they found.

    The last line is the command of the report.

    Args:
        n_jobs: of the sweep.
        done: jobs with nothing left to train.
        runs: folders of the runs of those that came to their end.
        config: of the sweep.
    """
    finished = [run for run in runs if is_done(run)]
    failed = sum(read_status(run).word == FAILED for run in runs)
    jobs = "1 job" if n_jobs == 1 else f"{n_jobs} jobs"
    models = f"{len(finished)} of their {len(runs)} models" + (
        f", {failed} failed" if failed else ""
    )
    print(f"{done} of {jobs} done: {models}")
    if not finished:
        return
    searched = OmegaConf.select(config, "hparams.scheme.chosen_by") is not None
    selection = (
        build(config.hparams.scheme, "chosen_by") if searched else build(config, "selection")
    )
    if len(finished) <= MOST_RUNS:
        try:
            print(sweep_table(finished, selection))
        except DgbenchError as error:  # e.g. results that no table may mix
            print(f"no table here: {error}")
    print_logged(
        config.logger,
        [*runs, *dict.fromkeys(run.parent for run in runs)],
        Path(config.hydra.sweep.dir),
    )
    print(f"report: {selecting_report_line(selection, [config.hydra.sweep.dir])}", flush=True)

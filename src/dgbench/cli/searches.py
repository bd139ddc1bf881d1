"""``hparams=search``: one study for every draw and trial, and what is trained again once a draw was chosen."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dgbench.errors import is_divergence
from dgbench.plan.search import Scheme
from dgbench.plan.studies import PlannedSearch
from dgbench.records.files import write_whole
from dgbench.records.locks import alone
from dgbench.records.spec import code_version
from dgbench.records.status import FAILED, is_done, read_status
from dgbench.reports.hparams import Choice, choices
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs
from dgbench.training.study import Study

CHOICE_FILE = "search.json"

log = logging.getLogger("dgbench")


@dataclass
class Search:
    """The studies of one search.

    Args:
        planned: how its job names it.
        studies: one for every draw and trial.
        again: those that train the chosen draws with more seeds, once there is a choice.
    """

    planned: PlannedSearch
    studies: list[Study]
    again: list[Study] = field(default_factory=list)

    @property
    def scheme(self) -> Scheme:
        """How it is trained."""
        return self.planned.scheme

    @property
    def place(self) -> Path:
        """The folder that its studies stand in."""
        return self.studies[0].folder.parent

    @property
    def repeats(self) -> int:
        """Runs that train once a draw was chosen."""
        return self.scheme.repeats * len(self.studies[0].runs)

    @property
    def file(self) -> Path:
        """Where the choice is kept: with the default set, which the search may leave out."""
        return self.planned.study({"hparams.draw": 0, "hparams.trial": 0, **self.planned.base}).folder / CHOICE_FILE


def searches(studies: Sequence[Study]) -> list[Search]:
    """The searches among the studies of a job."""
    found: dict[int, Search] = {}
    for study in studies:
        search = study.planned.search
        if search is not None:
            found.setdefault(id(search), Search(search, [])).studies.append(study)
    return list(found.values())


def chosen_again(search: Search) -> list[Study]:
    """Studies that train the chosen draw of every fold with more seeds; none before the search is complete.

    A run that diverged is complete: it lost. The choice is kept in :data:`CHOICE_FILE` with all candidates.
    """
    if not search.scheme.repeats or not _complete(search):
        return []
    found = choices_of(search)
    _keep(search, found)
    first = search.studies[0]
    for draw in dict.fromkeys(choice.draw for choice in found):
        folds = {choice.fold for choice in found if choice.draw == draw}
        for settings in search.scheme.again(search.planned.base, draw):
            planned = search.planned.study(settings)
            own = replace(planned, folds=[fold for fold in planned.folds if fold.name in folds])
            search.again.append(Study(own, first.source if own.dataset is first.planned.dataset else None))
    return search.again


def choices_of(search: Search) -> list[Choice]:
    """The models that count: the chosen draw of every trial and fold, and its repeats."""
    folders = [run.folder for study in (*search.studies, *search.again) for run in study.runs]
    if not any(folder.is_dir() for folder in folders):
        return []
    collection = collect([folder for folder in folders if folder.is_dir()])
    return choices(select_runs(collection, search.scheme.chosen_by))


def _complete(search: Search) -> bool:
    waiting = {}
    for study in search.studies:
        for run in study.runs:
            status = read_status(run.folder)
            if not is_done(run.folder) and not (status.word == FAILED and is_divergence(status.reason)):
                waiting[run.folder] = str(status) or "not started"
    if waiting:
        folder, why = next(iter(waiting.items()))
        log.warning(
            "the search of %s is not complete: %d models to train (e.g. %s: %s); the same command continues and then "
            "trains the chosen draw again",
            search.studies[0].spec.algorithm,
            len(waiting),
            folder,
            why,
        )
    return not waiting


def _keep(search: Search, found: Sequence[Choice]) -> None:
    """Write the choice of these folds; those of other folds, which another job may be writing, stay."""
    search.file.parent.mkdir(parents=True, exist_ok=True)
    with alone(search.file.with_name(f".{CHOICE_FILE}.lock")):
        _write(search, found)


def _write(search: Search, found: Sequence[Choice]) -> None:
    file, spec = search.file, search.studies[0].spec
    kept: dict[str, Any] = json.loads(file.read_text())["folds"] if file.is_file() else {}
    document = {
        "algorithm": spec.algorithm,
        "dataset": search.studies[0].info.name,
        "space": spec.space,
        "selection": search.scheme.chosen_by.name,
        "code": code_version(),
        "folds": {**kept, **{choice.fold: asdict(choice) for choice in found}},
    }
    write_whole(file, json.dumps(document, indent=1) + "\n")

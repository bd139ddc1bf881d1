"""``hparams=search``: one study for every draw and trial, and what is trained again once a draw was chosen."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench.callbacks.status import read_status
from dgbench.cli.build import build
from dgbench.cli.identity import code_version, digest, science, study_folder
from dgbench.cli.study import Study
from dgbench.errors import ConfigError, is_divergence
from dgbench.protocols.search import Scheme, Settings
from dgbench.records import write_whole
from dgbench.reports.choices import Choice, choices
from dgbench.reports.collect import collect
from dgbench.reports.selected import select_runs

CHOICE_FILE = "search.json"

log = logging.getLogger("dgbench")


@dataclass
class Search:
    """The studies of one search.

    Args:
        scheme: how it is trained.
        studies: one for every draw and trial.
        again: those that train the chosen draws with more seeds, once there is a choice.
    """

    scheme: Scheme
    studies: list[Study]
    again: list[Study] = field(default_factory=list)

    @property
    def place(self) -> Path:
        """The folder that its studies stand in."""
        return self.studies[0].folder.parent

    @property
    def repeats(self) -> int:
        """Members that train once a draw was chosen."""
        return self.scheme.repeats * len(self.studies[0].members)

    @property
    def file(self) -> Path:
        """Where the choice is kept."""
        config = self.studies[0].config
        base = _with(config, {"hparams.draw": 0, "hparams.trial": 0, **_base(config, self.scheme)})
        return self.place / study_folder(_root_=base) / CHOICE_FILE


def draws_of(config: DictConfig) -> list[DictConfig]:
    """The configuration of every study of a search; the configuration itself where it asks for none.

    Raises:
        ConfigError: a search that cannot be meant.
    """
    if config.hparams.get("scheme") is None:
        return [config]
    for key in ("draw", "trial"):
        if config.hparams[key] != 0:
            raise ConfigError(
                f"hparams.{key}={config.hparams[key]} is set by the search; leave it out, or train it alone with "
                "hparams=default"
            )
    scheme = _scheme(config)
    return [_with(config, settings) for settings in scheme.studies(_base(config, scheme))]


def searches(studies: Sequence[Study]) -> list[Search]:
    """The searches among the studies of a job."""
    found: dict[str, list[Study]] = defaultdict(list)
    for study in studies:
        if study.config.hparams.get("scheme") is not None:
            found[_kinship(study.config)].append(study)
    return [Search(_scheme(own[0].config), own) for own in found.values()]


def chosen_again(search: Search) -> list[Study]:
    """Studies that train the chosen draw of every fold with more seeds; none before the search is complete.

    A member that diverged is complete: it lost. The choice is kept in :data:`CHOICE_FILE` with all candidates.
    """
    if not search.scheme.repeats or not _complete(search):
        return []
    found = choices_of(search)
    _keep(search, found)
    first = search.studies[0]
    for draw in dict.fromkeys(choice.draw for choice in found):
        folds = {choice.fold for choice in found if choice.draw == draw}
        for settings in search.scheme.again(_base(first.config, search.scheme), draw):
            own = _with(first.config, settings)
            study = Study(own, search.place / study_folder(_root_=own))
            study.members = [member for member in study.members if member.fold.name in folds]
            search.again.append(study)
    return search.again


def choices_of(search: Search) -> list[Choice]:
    """The models that count: the chosen draw of every trial and fold, and its repeats."""
    folders = [member.folder for study in (*search.studies, *search.again) for member in study.members]
    if not any(folder.is_dir() for folder in folders):
        return []
    collection = collect([folder for folder in folders if folder.is_dir()])
    return choices(collection, select_runs(collection, search.scheme.chosen_by))


def _complete(search: Search) -> bool:
    waiting = {}
    for study in search.studies:
        for member in study.members:
            mark, _, reason = read_status(member.folder).partition(" ")
            if mark != "DONE" and not (mark == "FAILED" and is_divergence(reason)):
                waiting[member.folder] = " ".join([mark or "not started", reason]).strip()
    if waiting:
        folder, why = next(iter(waiting.items()))
        log.warning(
            "the search of %s is not complete: %d models to go (e.g. %s: %s); the same command goes on and then trains "
            "the chosen draw again",
            search.studies[0].config.algorithm.name,
            len(waiting),
            folder,
            why,
        )
    return not waiting


def _keep(search: Search, found: Sequence[Choice]) -> None:
    """Write the choice of these folds; those of other folds stay."""
    file, config = search.file, search.studies[0].config
    kept: dict[str, Any] = json.loads(file.read_text())["folds"] if file.is_file() else {}
    document = {
        "algorithm": config.algorithm.name,
        "dataset": config.dataset.name,
        "space": config.hparams.space,
        "selection": search.scheme.chosen_by.name,
        "code": code_version(),
        "folds": {**kept, **{choice.fold: choice.to_json() for choice in found}},
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(document, indent=1) + "\n")


def _scheme(config: DictConfig) -> Scheme:
    node = OmegaConf.create({"hparams.scheme": OmegaConf.to_container(config.hparams.scheme, resolve=True)})
    scheme: Scheme = build(node, "hparams.scheme")
    return scheme


def _base(config: DictConfig, scheme: Scheme) -> Settings:
    """The keys that vary, as they are for trial 0."""
    base = {}
    for key in scheme.varies:
        value = OmegaConf.select(config, key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"hparams.scheme.varies: {key}={value} is no integer; name keys that are, e.g. [seed]")
        base[key] = value - config.hparams.trial
    return base


def _with(config: DictConfig, settings: Settings) -> DictConfig:
    own = deepcopy(config)
    for key, value in settings.items():
        OmegaConf.update(own, key, value)
    return own


def _kinship(config: DictConfig) -> str:
    """Equal for the studies of one search."""
    content = science(_with(config, {"hparams.draw": 0, "hparams.trial": 0, **_base(config, _scheme(config))}))
    return digest([content, OmegaConf.to_container(config.hparams.scheme, resolve=True)])

"""The jobs of a command and the studies that each of them trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench.cli.absent_data import known_without_images
from dgbench.cli.build import NOT_BUILT, build, without
from dgbench.cli.fold_plan import Known, planned_folds
from dgbench.cli.identity import text
from dgbench.cli.sweeps.composing import Composed, Composer
from dgbench.errors import ConfigError
from dgbench.protocols.search import Scheme

CHANCE = ("data_seed", "split_seed")  # keys of a dataset that change its images, never its environments


@dataclass(frozen=True, slots=True)
class Planned:
    """A study that a job would train.

    Args:
        words: the overrides that compose it.
        composed: its configuration.
        folder: where it stands.
        repeats: how many more models per fold its search trains once it has chosen; told by its first study.
    """

    words: Sequence[str]
    composed: Composed
    folder: Path
    repeats: int = 0


def grid_combinations(grid: dict[str, Any]) -> list[list[str]]:
    """The overrides of every combination of the lists under ``grid``; one without any where there are none.

    An entry that is null, as one that is to be taken out of an experiment's grid, counts as not there.

    Raises:
        ConfigError: an entry is no list.
    """
    grid = {key: values for key, values in dict(_flat(grid)).items() if values is not None}
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{key}={values} is no list; write grid.{key}=[...], or null to leave it out")
    return [[f"{key}={value}" for key, value in zip(grid, own, strict=True)] for own in product(*grid.values())]


def _flat(grid: dict[str, Any], under: str = "") -> Iterator[tuple[str, Any]]:
    """Entries with dots in their keys; an experiment writes ``dataset.ratio``, a word of the command line nests it."""
    for key, values in grid.items():
        if isinstance(values, dict):
            yield from _flat(values, f"{under}{key}.")
        else:
            yield f"{under}{key}", values


def studies_of(words: Sequence[str], composer: Composer, place: Callable[[Composed], Path]) -> Iterator[Planned]:
    """The studies of one job: itself, or those of its grid and of its search.

    Args:
        words: the job's overrides.
        composer: composes them.
        place: the job's folder.
    """
    job = composer.compose(words)
    grid, folder = job["grid"], place(job)
    beside = folder.parent if folder.name == job.study else folder
    for chosen in grid_combinations(grid):
        typed = [*words, *chosen]
        own = composer.compose(typed) if chosen else job
        scheme = own["hparams"].get("scheme")
        if scheme is None:
            yield Planned(typed, own, beside / own.study if chosen else folder)
            continue
        search: Scheme = build(OmegaConf.create({"hparams.scheme": scheme}), "hparams.scheme")
        for n, settings in enumerate(search.studies({key: _at(own, key) for key in search.varies})):
            drawn = [*typed, *(f"{key}={value}" for key, value in settings.items())]
            composed = composer.compose(drawn)
            yield Planned(drawn, composed, beside / composed.study, 0 if n else search.repeats)


class Folds:
    """Names of the folds that a study trains, and how many environments each trains on."""

    def __init__(self) -> None:
        self._folds: dict[tuple[str, str], dict[str, int]] = {}
        self._known: dict[str, Known] = {}

    def of(self, study: Composed) -> dict[str, int]:
        key = (study.contents["dataset"].whole, study.contents["protocol"].whole)
        if key not in self._folds:
            config = OmegaConf.create({name: study[name] for name in ("dataset", "protocol")})
            folds = planned_folds(config, self._environments(config))
            self._folds[key] = {fold.name: len(fold.training) for fold in folds}
        return self._folds[key]

    def _environments(self, config: DictConfig) -> Known:
        dataset: Any = OmegaConf.to_container(config.dataset)
        told = known_without_images(dataset)
        if told:
            return told
        key = text({name: value for name, value in dataset.items() if name not in CHANCE})
        if key not in self._known:  # only the images can tell
            built = build(without(config, "dataset", *NOT_BUILT), "dataset")
            self._known[key] = Known(built.given, built.n_classes, built.beyond)
        return self._known[key]


def _at(composed: Composed, key: str) -> Any:
    top, *parts = key.split(".")
    node = composed[top]
    for part in parts:
        node = node[part]
    return node

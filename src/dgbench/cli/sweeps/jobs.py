"""The jobs of a command and the studies that each of them trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from dgbench.cli.build import build
from dgbench.cli.sweeps.composing import Composed, Composer
from dgbench.errors import ConfigError
from dgbench.protocols.search import Scheme


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

    Raises:
        ConfigError: an entry is no list.
    """
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{key}={values} is no list; write grid.{key}=[...]")
    return [[f"{key}={value}" for key, value in zip(grid, own, strict=True)] for own in product(*grid.values())]


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
    for chosen in grid_combinations(grid) if grid else [[]]:
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


def _at(composed: Composed, key: str) -> Any:
    top, *parts = key.split(".")
    node = composed[top]
    for part in parts:
        node = node[part]
    return node

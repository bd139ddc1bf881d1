"""Several studies in one job, so that their members can train together: a grid, and the draws of a search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from dgbench.cli.identity import digest, study_folder
from dgbench.cli.initial import InitialWeights, for_images_of, initial_weights
from dgbench.cli.search import draws_of
from dgbench.cli.study import Study
from dgbench.cli.sweeps.jobs import grid_combinations
from dgbench.data.environments import Environments


def studies(config: DictConfig, folder: Path) -> list[Study]:
    """The one study of a configuration, or one for every combination of the lists under ``grid`` and draw of a search.

    Several studies stand where single ones would: beside the job's own folder where Hydra named it, in the folder that
    the user named otherwise. Studies over the same dataset share its images, those of one network its initial weights.

    Args:
        config: the job's configuration.
        folder: the job's folder.

    Raises:
        ConfigError: an entry of the grid is no list, or a search that cannot be meant.
    """
    known: dict[str, Environments] = {}
    weights: dict[str, InitialWeights] = {}
    found = []
    for own in (drawn for combination in _combinations(config) for drawn in draws_of(combination)):
        start = digest([OmegaConf.to_container(own[group], resolve=True) for group in ("init", "backbone")])
        weights[start] = weights.get(start) or initial_weights(own)
        images = digest(OmegaConf.to_container(for_images_of(weights[start], own).dataset, resolve=True))
        study = Study(own, _place(own, config, folder), known.get(images), weights[start])
        known[images] = study.source
        found.append(study)
    return found


def _combinations(config: DictConfig) -> Iterator[DictConfig]:
    grid: dict[str, Any] = OmegaConf.to_container(config.grid, resolve=True)  # type: ignore[assignment]
    typed = list(HydraConfig.get().overrides.task)
    for chosen in grid_combinations(grid):
        yield compose(HydraConfig.get().job.config_name, [*typed, *chosen]) if chosen else config


def _place(own: DictConfig, config: DictConfig, folder: Path) -> Path:
    if own is config:
        return folder
    return (folder.parent if folder.name == study_folder(_root_=config) else folder) / study_folder(_root_=own)

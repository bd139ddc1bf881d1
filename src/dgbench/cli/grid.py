"""Several studies in one job, so that their members can train together."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from dgbench.cli.identity import digest, study_folder
from dgbench.cli.study import Study
from dgbench.data.environments import Environments
from dgbench.errors import ConfigError


def studies(config: DictConfig, folder: Path) -> list[Study]:
    """The one study of a configuration, or one for every combination of the lists under ``grid``.

    Studies of a grid stand where single ones would: in ``paths.output_dir`` under their own names. Studies over the
    same dataset share its images.

    Raises:
        ConfigError: an entry of the grid is no list.
    """
    grid: dict[str, Any] = OmegaConf.to_container(config.grid, resolve=True)  # type: ignore[assignment]
    if not grid:
        return [Study(config, folder)]
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{key}={values} is no list; write grid.{key}=[...]")
    typed = list(HydraConfig.get().overrides.task)
    known: dict[str, Environments] = {}
    found = []
    for combination in product(*grid.values()):
        chosen = [f"{key}={value}" for key, value in zip(grid, combination, strict=True)]
        own = compose(HydraConfig.get().job.config_name, [*typed, *chosen])
        images = digest(OmegaConf.to_container(own.dataset, resolve=True))
        study = Study(own, Path(own.paths.output_dir) / study_folder(_root_=own), known.get(images))
        known[images] = study.environments
        found.append(study)
    return found

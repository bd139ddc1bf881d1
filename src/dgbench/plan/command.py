"""One command: a configuration, how its variants are composed, where its studies go, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf

from dgbench.errors import ConfigError, RunsFailedError
from dgbench.plan.compose import Composed, Composer
from dgbench.plan.studies import PlannedStudy, Planner


@dataclass
class Command:
    """Holds what a user typed: a configuration, and the studies that it stands for.

    Args:
        config: the composed configuration.
        words: the overrides that it was composed from.
        loader: Hydra's; knows which words choose a group.
        compose: composes other overrides.
        parent: folder that the studies go to.
    """

    config: DictConfig
    words: Sequence[str]
    loader: ConfigLoader
    compose: Callable[[list[str]], DictConfig]
    parent: Path
    chooses_threads: bool = False  #: a command does; a Python caller may have set torch's number
    prints_plan: bool = True  #: a command of several studies shows its plan first; jobs of a sweep do not

    @staticmethod
    def of_hydra(config: DictConfig) -> Command:
        """Read the command that Hydra runs at this moment.

        Raises:
            ConfigError: a launcher without a sweep.
        """
        from hydra import compose
        from hydra.core.global_hydra import GlobalHydra
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        hydra = HydraConfig.get()
        sweeps, launcher = hydra.mode is RunMode.MULTIRUN, hydra.runtime.choices.get("hydra/launcher", "basic")
        if not sweeps and launcher != "basic":
            raise ConfigError(f"hydra/launcher={launcher} starts the jobs of a sweep; add -m, or leave it out")
        parent = hydra.sweep.dir if sweeps else config.paths.output_dir
        name = str(hydra.job.config_name)
        words = [str(word) for word in hydra.overrides.task]
        loader = GlobalHydra.instance().config_loader()
        return Command(
            config, words, loader, lambda other: compose(name, other), Path(parent), True, prints_plan=not sweeps
        )

    def planner(self) -> Planner:
        """Make the planner of its studies."""
        return Planner(Composer(self.loader, self.compose), self.parent)

    def key(self) -> str:
        """Make a key that is equal for commands that plan the same runs over the same files."""
        return self.planner().key(Composed.of_config(self.config, str(self.parent)))

    def values(self) -> dict[str, Any]:
        """Give plain resolved values by top-level key."""
        return Composed.of_config(self.config, "").plain()

    def plain(self, top: str) -> Any:
        """Give plain resolved values under a top-level key."""
        return OmegaConf.to_container(self.config[top], resolve=True)


def planned_studies(command: Command) -> list[PlannedStudy]:
    """Plan every study of a command once and check it; what is absent may be downloaded.

    Nothing is decoded, built or started.

    Raises:
        ConfigError, DataError, WeightsError: one that cannot work.
    """
    planner = command.planner()
    _ = list(planner.studies(command.words))  # wrong values are refused before anything is downloaded
    studies = planner.downloading().studies(command.words)
    return list({(study.folder, *(fold.name for fold in study.folds)): study for study in studies}.values())


TABLES = 4  # more studies in one job than this get a line each


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Args:
        folders: run folders of all its studies.
        failed: what failed, by study; empty where nothing did.
    """

    folders: Sequence[Path] = ()
    failed: Sequence[str] = ()

    def raise_failed(self) -> None:
        """Say in one line what failed.

        Raises:
            RunsFailedError: something did.
        """
        if self.failed:
            more = f" and of {len(self.failed) - TABLES} more" if len(self.failed) > TABLES else ""
            raise RunsFailedError(
                f"{'; '.join(self.failed[:TABLES])}{more} failed; see log.txt and status in its folder, correct the "
                "cause and start the same command again"
            )

"""Configurations and studies as a command makes them, without the command."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dgbench.callbacks.loggers import MetricsLogger
from dgbench.callbacks.progress import StudyProgress
from dgbench.configuration import CONF
from dgbench.data.environments import Environments
from dgbench.plan.compose import Composer
from dgbench.plan.overrides import open_keys
from dgbench.plan.studies import PlannedStudy, planned_again
from dgbench.training.groups import RunGroup, plan_groups
from dgbench.training.modules import RunModule
from dgbench.training.study import ReadyStudy
from dgbench.training.train_runs import train_runs

SMALL = ("dataset.base=digits", "backbone.width=8", "hparams.batch_size=8", "trainer.device=cpu")


def composed(*overrides: str, name: str = "train", hydra: bool = False) -> DictConfig:
    """The configuration of a command, e.g. ``composed("algorithm=vrex", "hparams.lr=0.1")``,
    Hydra's own where asked.

    Hydra composes each choice of files once, and plain values are set in it as Hydra sets them; a
    test may change what it gets.
    """
    words = open_keys(overrides)
    values = [None if hydra else _plain_value(word) for word in words]
    others = tuple(word for word, value in zip(words, values, strict=True) if value is None)
    config: DictConfig = pickle.loads(_composed(name, others, hydra))
    try:
        for value in filter(None, values):
            OmegaConf.update(config, value.key_or_group, value.value(), merge=True)
    except OmegaConfBaseException:  # Hydra says what is wrong
        config = pickle.loads(_composed(name, tuple(words), hydra))
    return config


@cache
def _plain_value(word: str) -> Override | None:
    """The override of a word that sets a key of a group, and does nothing else."""
    try:
        override = (
            OverridesParser.create().parse_override(word) if "." in word.partition("=")[0] else None
        )
    except HydraException:  # said again where the configuration is composed
        return None
    sets = (
        override is not None
        and override.type is OverrideType.CHANGE
        and not override.is_sweep_override()
    )
    return (
        override
        if sets and "${" not in word and "@" not in word and not word.startswith("hydra")
        else None
    )


@cache
def _composed(name: str, words: tuple[str, ...], hydra: bool) -> bytes:
    with initialize_config_dir(str(CONF), job_name=name, version_base="1.3"):
        return pickle.dumps(compose(name, list(words), return_hydra_config=hydra))


def composer() -> Composer:
    """Composes studies as a command does: one with choices of files that were composed before in
    milliseconds.
    """
    return _composer(*map(os.environ.get, ("DGBENCH_DATA_DIR", "DGBENCH_CACHE_DIR")))


@cache
def _composer(*folders: str | None) -> Composer:
    """A composer keeps values that refer to folders of the environment."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
    return Composer(loader, lambda words: pickle.loads(_composed("train", tuple(words), False)))


def plain(config: DictConfig) -> dict[str, Any]:
    """Plain resolved values by top-level key."""
    content: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    content.pop("hydra", None)
    return content


def make_plan(folder: Path, *overrides: str) -> PlannedStudy:
    """The study of a command as it is planned; nothing is decoded or built."""
    return planned_again(deepcopy(composer().compose(open_keys(overrides)).plain()), folder)


def make_study(folder: Path, *overrides: str, source: Environments | None = None) -> ReadyStudy:
    """The study of a command, ready to train.

    Args:
        folder: that the study's own folder will stand in.
        overrides: as typed after ``python train.py``.
        source: environments of another study over the same dataset; None builds them.
    """
    return ReadyStudy(make_plan(folder, *overrides), source)


def small_study(folder: Path, *overrides: str, source: Environments | None = None) -> ReadyStudy:
    """A study of seconds: digits, networks of width 8, minibatches of 8, on the CPU."""
    return make_study(folder, *SMALL, *overrides, source=source)


def train_study(
    study: ReadyStudy, retry: str = "all", logger: MetricsLogger | None = None
) -> dict[str, bool]:
    """Train what is not done; whether each run is complete, by its hash."""
    progress = StudyProgress(len(study.runs), study.settings.steps, "test")
    return train_runs([study], study.config["execution"], progress, logger, retry).complete


def groups_of(study: ReadyStudy, **execution: Any) -> list[RunGroup]:
    """The groups of a study; keys of ``conf/execution`` may be replaced."""
    return plan_groups(study.runs, {**study.config["execution"], **execution})


@contextmanager
def stopping_at(step: int) -> Iterator[None]:
    """Training fails before the minibatches that are computed together with those of a step."""
    train_steps = RunModule.train_steps

    def stop(self: RunModule, batches: Any, optimizers: Any) -> Any:
        if self.steps_done + len(batches) > step:
            raise RuntimeError("stopped")
        return train_steps(self, batches, optimizers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunModule, "train_steps", stop)
        yield

"""A study: one dataset, algorithm and seed, and the members (folds) to train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from dgbench.algorithms.base import Algorithm
from dgbench.backbones.build import build_networks
from dgbench.cli.build import build, nameless
from dgbench.cli.identity import code_version, digest, science
from dgbench.cli.schema import TrainerConfig, seed, trainer_config
from dgbench.data.environments import Environments
from dgbench.data.module import EnvironmentData
from dgbench.errors import ConfigError
from dgbench.protocols.folds import Fold
from dgbench.records import RunIdentity
from dgbench.types import Sizes

SMALL_IMAGE = 32  # pixels a side up to which an algorithm's ``small`` hyperparameters hold

@dataclass(frozen=True)
class Member:
    """One model to train.

    Args:
        fold: what it trains on.
        identity: what its rows say of it.
        folder: where its rows, marks and checkpoints live.
        data: its minibatches and scoring passes.
    """

    fold: Fold
    identity: RunIdentity
    folder: Path
    data: EnvironmentData


class Study:
    """Everything that the members of one study share.

    Args:
        config: the composed configuration.
        folder: the study's folder.

    Raises:
        ConfigError, DataError: something in the configuration cannot work; nothing was trained.
    """

    def __init__(self, config: DictConfig, folder: Path) -> None:
        self.config, self.folder = config, folder
        self.trainer: TrainerConfig = trainer_config(config.trainer)
        self.seed = seed(config.seed)
        self.environments: Environments = build(config, "dataset")
        self.algorithm = _algorithm(config)
        self.hparams: dict[str, Any] = {
            "lr": self.trainer.lr,
            "weight_decay": self.trainer.weight_decay,
            "batch_size": self.trainer.batch_size,
            **_hparams(config, self.algorithm, self.environments.image),
        }
        self.folds: list[Fold] = build(config, "protocol")(self.environments.given)
        self._science = science(config)
        self.run = digest([self._science, self.environments.identity()])
        self.members = [self._member(fold) for fold in self.folds]

    def _member(self, fold: Fold) -> Member:
        known = self.environments.identity()
        run = digest([self._science, known, asdict(fold)])
        identity = RunIdentity(
            run=run,
            **known,
            algorithm=self.config.algorithm.name,
            hparams={**self.hparams, "steps": self.trainer.steps},
            backbone=self.config.backbone.name,
            protocol=self.config.protocol.name,
            fold=fold.name,
            held_out=list(fold.held_out),
            seed=self.seed,
            code=code_version(),
        )
        data = EnvironmentData(
            self.environments,
            fold.training,
            self.environments.scores(everywhere=not fold.held_out, subsets=self.trainer.eval_subsets),
            steps=self.trainer.steps,
            eval_every=self.trainer.eval_every,
            batch_size=self.trainer.batch_size,
            eval_batch_size=self.trainer.eval_batch_size,
            seed=self.seed,
        )
        return Member(fold, identity, self.folder / f"fold-{fold.name}-{run}", data)

    def module(self, fold: Fold) -> Algorithm:
        """A freshly initialized algorithm for one fold."""
        algorithm = self.algorithm
        shapes = Sizes(
            n_features=0,
            n_classes=self.environments.n_classes,
            n_envs=len(fold.training),
            image=self.environments.image,
        )
        networks, sizes = build_networks(
            lambda image: build(nameless(self.config, "backbone"), "backbone", image=image),
            shapes,
            partial(_needed, algorithm, self.hparams),
            algorithm.extra_channels,
            self.seed,
        )
        return algorithm(networks, sizes, self.hparams, seed=self.seed)


def _algorithm(config: DictConfig) -> type[Algorithm]:
    try:
        found = get_class(config.algorithm._target_)
    except Exception as error:  # Hydra reports a class it cannot find in several ways
        raise ConfigError(f"algorithm._target_={config.algorithm._target_} cannot be imported; mend the path") from error
    if not issubclass(found, Algorithm):
        raise ConfigError(f"algorithm._target_={config.algorithm._target_} is no dgbench Algorithm; subclass it")
    return found


def _hparams(config: DictConfig, algorithm: type[Algorithm], image: tuple[int, int, int]) -> dict[str, Any]:
    """The algorithm's own hyperparameters; ``{small: ..., large: ...}`` is resolved by the size of the image.

    Raises:
        ConfigError: one that is a number by default is none.
    """
    values: dict[str, Any] = OmegaConf.to_container(config.algorithm.hparams, resolve=True)  # type: ignore[assignment]
    size = "small" if max(image[1:]) <= SMALL_IMAGE else "large"
    chosen = {k: v[size] if isinstance(v, Mapping) and set(v) == {"small", "large"} else v for k, v in values.items()}
    for key, value in chosen.items():
        if key not in algorithm.static and not isinstance(value, (int, float)):
            raise ConfigError(f"algorithm.hparams.{key}={value} is not a number; give one")
    return chosen


def _needed(algorithm: type[Algorithm], hparams: Mapping[str, Any], sizes: Sizes) -> Mapping[str, Any]:
    return algorithm.networks_needed(sizes, hparams)


"""A study: one dataset, algorithm and seed, and the members (folds) to train."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from torch import nn

from dgbench.algorithms.base import Algorithm
from dgbench.algorithms.updates import UpdateRule
from dgbench.backbones.build import build_networks
from dgbench.callbacks.averaging import Averaging
from dgbench.cli.build import NOT_BUILT, build, without
from dgbench.cli.features import asked_of, cached_features, refuse_cached
from dgbench.cli.fold_data import environments_of, scores_of, smallest_training
from dgbench.cli.fold_plan import Known, planned_folds
from dgbench.cli.hyperparameters import fit_batch, hyperparameters
from dgbench.cli.identity import code_version, digest, science
from dgbench.cli.initial import InitialWeights, for_images_of, initial_weights
from dgbench.cli.schema import changed, seed
from dgbench.data.environments import Environments
from dgbench.data.features import CachedFeatures
from dgbench.data.module import EnvironmentData
from dgbench.errors import ConfigError
from dgbench.protocols.folds import Fold
from dgbench.records import RunIdentity
from dgbench.training.tuning import ALL, Tuning
from dgbench.types import Networks, Sizes


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

    @property
    def checkpoint(self) -> Path:
        """Where it can be resumed from, once it has come that far."""
        return self.folder / "checkpoints" / "last.ckpt"


class Study:
    """Everything that the members of one study share.

    Args:
        config: the composed configuration.
        folder: the study's folder.
        environments: those of another study over the same dataset; None builds them.
        weights: the initial weights of another study with the same; None takes those of the configuration.

    Raises:
        ConfigError, DataError, WeightsError: something in the configuration cannot work; nothing was trained.
    """

    def __init__(
        self,
        config: DictConfig,
        folder: Path,
        environments: Environments | None = None,
        weights: InitialWeights | None = None,
    ) -> None:
        self.weights = weights or initial_weights(config)
        self.config, self.folder = for_images_of(self.weights, config), folder
        config = self.config
        self.algorithm = _algorithm(config)
        self.trainer, self.hparams = hyperparameters(config, self.algorithm.static)
        self.seed = seed(config.seed)
        self.tuning: Tuning = build(config, "tuning")
        self.source: Environments = environments or build(without(config, "dataset", *NOT_BUILT), "dataset")
        known = Known(self.source.given, self.source.n_classes, self.source.beyond)
        self.folds = planned_folds(config, known)
        smallest = smallest_training(self.folds, self.source)
        self.trainer, self.hparams = fit_batch(config, self.trainer, self.hparams, smallest)
        self.environments = self._cached() if self.tuning.cache_features else self.source
        self._science = science(config)
        self.run = digest([self._science, *self.beside()])
        self.members = [self._member(fold) for fold in self.folds]

    def _member(self, fold: Fold) -> Member:
        known = self.environments.identity()
        run = digest([self._science, *self.beside(), fold.key()])
        identity = RunIdentity(
            run=run,
            **known,
            algorithm=self.config.algorithm.name,
            hparams={
                **self.hparams,
                "steps": self.trainer.steps,
                **changed(self.trainer),
                **self._averaging_settings(),
            },
            averaging=self.config.averaging.name,
            draw=self.config.hparams.draw,
            space=self.config.hparams.space,
            trial=self.config.hparams.trial,
            backbone=self.config.backbone.name,
            init=self.weights.identity,
            tuning=self.tuning.name,
            protocol=self.config.protocol.name,
            fold=fold.name,
            held_out=list(fold.held_out),
            folds=None if fold.folds is None else [list(tested) for tested in fold.folds],
            seed=self.seed,
            beyond=self.environments.beyond,
            grouped=self.group_size > 0,
            code=code_version(),
        )
        environments = environments_of(fold, self.environments)
        data = EnvironmentData(
            environments,
            fold.training,
            scores_of(fold, environments, self.trainer.eval_subsets, self.group_size > 0),
            steps=self.trainer.steps,
            eval_every=self.trainer.eval_every,
            batch_size=self.trainer.batch_size,
            eval_batch_size=self.trainer.eval_batch_size,
            seed=self.seed,
            group_size=self.group_size,
        )
        return Member(fold, identity, self.folder / f"fold-{fold.name}-{run}", data)

    @property
    def group_size(self) -> int:
        """Images that a prediction sees together; 0 where each image is predicted by itself."""
        return self.algorithm.group_size(self.hparams)

    def beside(self) -> list[Any]:
        """What a run's hash covers beside its configuration and fold: images and weights as they were found."""
        return [self.source.identity(), self.weights.identity]

    def _cached(self) -> CachedFeatures:
        refuse_cached(self.algorithm, self.tuning, self.trainer)
        networks, _ = self._networks(self.folds[0])
        featurizer: Any = networks["featurizer"]
        asked = asked_of(self.folds, self.source, self.trainer.eval_subsets, self.group_size > 0)
        return cached_features(self.source, featurizer, self.tuning, self.trainer, asked)

    def averaging(self) -> Averaging | None:
        """What averages one member's weights, if anything does."""
        if "_target_" not in self.config.averaging:
            return None
        callback: Averaging = build(without(self.config, "averaging", "name"), "averaging")
        return callback

    def _averaging_settings(self) -> dict[str, Any]:
        rule = self.config.averaging.get("rule") or {}
        return {f"averaging.{key}": value for key, value in rule.items() if key != "_target_"}

    @cached_property
    def resolved_yaml(self) -> str:
        """The study's configuration, every reference resolved."""
        return OmegaConf.to_yaml(self.config, resolve=True)

    def columns(self) -> dict[str, Any]:
        """What a dashboard groups and filters by: flat names for W&B's run table."""
        names = {f"{key}_name": self.config[key].name for key in ("dataset", "algorithm", "backbone", "protocol")}
        drawn = {key: self.config.hparams[key] for key in ("space", "draw", "trial")}
        return {**names, **drawn, "hyperparameters": dict(self.hparams), "code": code_version()}

    def tags(self) -> list[str]:
        """Tags of its W&B runs."""
        searched = ["search"] if self.config.hparams.draw or self.config.hparams.get("scheme") is not None else []
        return [self.config.dataset.name, self.config.algorithm.name, *searched]

    def why_not_stacked(self) -> str | None:
        """Why members of this study cannot train together with others; None when they can."""
        if any(fold.membership for fold in self.folds):
            return f"protocol={self.config.protocol.name} scores other images in each model"
        if not self.algorithm.stackable:
            return self.algorithm.why_not_stackable
        network = getattr(get_class(self.config.backbone._target_), "why_not_stackable", None)
        if network and not (self.tuning.cache_features and self.tuning.freeze_stages == ALL):
            return str(network)
        if "_target_" in self.config.averaging:
            return f"averaging={self.config.averaging.name} follows one member at a time"
        if self.trainer.precision not in ("32-true", "64-true"):
            return f"trainer.precision={self.trainer.precision} needs Lightning's own optimizer step"
        if self.trainer.devices > 1:
            return f"trainer.devices={self.trainer.devices} shares one member among processes"
        if self.trainer.accumulate > 1:
            return f"trainer.accumulate={self.trainer.accumulate} saves memory where one member is large"
        if self.trainer.channels_last:
            return "trainer.channels_last=true lays out the convolutions of one member"
        drops = {**self.hparams, **self.config.backbone}
        if any("dropout" in key and drops[key] for key in drops):
            return "dropout draws from a generator that members of a stack would share"
        return None

    def module(self, fold: Fold) -> Algorithm:
        """A freshly initialized algorithm for one fold."""
        networks, sizes = self._networks(fold)
        featurizer: Any = networks["featurizer"]
        self.tuning.freeze(networks, featurizer.stages())
        if self.tuning.cache_features:
            featurizer.first_stage = self.tuning.count(len(featurizer.stages()))
            sizes = replace(sizes, image=self.environments.image)
        settings = self.trainer
        rule = UpdateRule(settings.steps, settings.schedule, settings.gradient_clip, settings.accumulate)
        if settings.channels_last:
            networks.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module = self.algorithm(networks, sizes, self.hparams, seed=self.seed, rule=rule)
        # Lightning loads a checkpoint before it makes the module double, and would round its weights
        return module.double() if settings.precision == "64-true" else module

    def _networks(self, fold: Fold) -> tuple[Networks, Sizes]:
        """Networks with their initial weights."""
        shapes = Sizes(
            n_features=0,
            n_classes=self.source.n_classes,
            n_envs=len(fold.training),
            image=self.source.image,
        )
        return build_networks(
            self._featurizer,
            shapes,
            partial(_needed, self.algorithm, self.hparams),
            self.algorithm.extra_channels,
            self.seed,
        )

    @staticmethod
    def counted(member: Member, module: Algorithm) -> RunIdentity:
        """What the rows of a member say of it, with the size of its networks."""
        trainable = module.networks.params().values()
        return replace(
            member.identity,
            n_parameters=sum(p.numel() for p in module.networks.parameters()),
            n_trainable=sum(p.numel() for p in trainable),
        )

    def _featurizer(self, image: tuple[int, int, int]) -> nn.Module:
        wanted = self.config.backbone.get("hparams") or {}  # constructor's argument -> hyperparameter
        taken = {key: self.hparams[hparam] for key, hparam in wanted.items()}
        config = without(self.config, "backbone", "name", "hparams")
        featurizer: nn.Module = build(config, "backbone", image=image, **taken)
        self.weights.load(featurizer)
        return featurizer


def _algorithm(config: DictConfig) -> type[Algorithm]:
    path = config.algorithm._target_
    try:
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # also whatever the module itself raises
        raise ConfigError(f"algorithm._target_={path} cannot be imported; mend the path") from error
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ConfigError(f"algorithm._target_={path} is no dgbench Algorithm; subclass it")
    return found


def _needed(algorithm: type[Algorithm], hparams: Mapping[str, Any], sizes: Sizes) -> Mapping[str, Any]:
    return algorithm.networks_needed(sizes, hparams)

"""A study ready to train: the images, the networks and the runs of one dataset, algorithm and seed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn

from dgbench.callbacks.averaging import Averaging
from dgbench.callbacks.users import check_callbacks
from dgbench.containers import Networks
from dgbench.data.environments import Environments
from dgbench.data.minibatches import EnvironmentData
from dgbench.network_specs import Sizes
from dgbench.networks.build import build_networks
from dgbench.plan.building import build, without
from dgbench.plan.folds import Fold
from dgbench.plan.identity import callback_values
from dgbench.plan.inputs import built
from dgbench.plan.settings import TrainerSettings
from dgbench.plan.studies import PlannedStudy
from dgbench.records.rows import RunIdentity
from dgbench.records.spec import RunSpec, code_version
from dgbench.training.compatibility import (
    InitialHead,
    check_algorithm,
    check_backbone,
    check_combination,
    check_weights,
    sharpness_of,
)
from dgbench.training.fold_data import asked_of, cached_features, environments_of, recipes_of, refuse_cached
from dgbench.training.modules import SingleRun
from dgbench.training.modules.factory import algorithm_class
from dgbench.training.modules.predicting import OneRun
from dgbench.training.optimizers import UpdateRule
from dgbench.training.tuning import ALL, Tuning

TRUE = ("32-true", "64-true")
log = logging.getLogger("dgbench")


@dataclass(frozen=True)
class Run:
    """One model to train: a fold of a study.

    Args:
        study: that it belongs to.
        fold: what it trains on.
        spec: what it is.
        folder: where its rows, status and checkpoints are kept.
        data: its minibatches and eval sets.
    """

    study: Study
    fold: Fold
    spec: RunSpec
    folder: Path
    data: EnvironmentData

    @property
    def hash(self) -> str:
        """12 hexadecimal digits that name it."""
        return self.spec.digest

    @property
    def title(self) -> str:
        """What a message calls it."""
        return f"{self.study.folder.name} fold {self.fold.name}"

    def identity(self, module: OneRun) -> RunIdentity:
        """What its rows say of it.

        Args:
            module: that trains it, or one of the same shape.
        """
        study, config = self.study, self.study.config
        rule = config["averaging"].get("rule") or {}
        averaging = {f"averaging.{key}": value for key, value in rule.items() if key != "_target_"}
        sharpness = self.spec.sharpness if "_target_" in self.spec.sharpness else {}
        return RunIdentity(
            run=self.hash,
            **study.info.facts(),
            algorithm=self.spec.algorithm,
            hparams={
                **self.spec.hparams,
                "steps": study.settings.steps,
                **study.settings.changed(),
                **averaging,
                **{f"sharpness.{key}": value for key, value in sharpness.items() if key != "_target_"},
                **callback_values(self.spec.callbacks),
            },
            averaging=config["averaging"]["name"],
            draw=self.spec.draw,
            space=self.spec.space,
            trial=self.spec.trial,
            backbone=self.spec.backbone,
            init=self.spec.init,
            head=self.spec.head.get("name", "random"),
            tuning=study.tuning.name,
            n_parameters=sum(p.numel() for p in module.networks.parameters()),
            n_trainable=sum(p.numel() for p in module.networks.params().values()),
            protocol=self.spec.protocol,
            fold=self.fold.name,
            held_out=list(self.fold.held_out),
            folds=None if self.fold.folds is None else [list(tested) for tested in self.fold.folds],
            seed=self.spec.seed,
            beyond=study.info.beyond,
            grouped=study.group_size > 0,
            user_code=self.spec.user_code,
            code=code_version(),
        )


class Study:
    """Everything that the runs of one study share.

    Args:
        planned: the study as it was planned.
        source: the environments of another study over the same dataset; None builds them.

    Raises:
        ConfigError, DataError, WeightsError: something in the configuration cannot work; nothing was trained.
    """

    def __init__(self, planned: PlannedStudy, source: Environments | None = None) -> None:
        self.planned, self.config, self.spec, self.folds = planned, planned.config, planned.spec, planned.folds
        self.folder = planned.folder
        check_backbone(self.config, planned.info)
        check_weights(planned.weights, self.config)
        self.head: InitialHead = build({"head": self.config["head"]}, "head")
        self.head.check()
        self.algorithm = algorithm_class(self.config["algorithm"]["objective"])
        check_algorithm(self.algorithm, self.config, planned.info)
        self.settings = TrainerSettings(**self.config["trainer"])
        self.tuning: Tuning = build(self.config, "tuning")
        self.source: Environments = source or built(planned.dataset)
        self.info = self.source.info
        self._check()
        self.environments = self._cached() if self.tuning.cache_features else self.source
        self.runs = [self._run(fold) for fold in self.folds]

    def _check(self) -> None:
        """Refuse a network and an averaging that cannot be built, before anything is written."""
        self.averaging()
        check_callbacks(self.config["callbacks"])
        check_combination(self.algorithm, self.config, self.settings)
        self.tuning.check(self.settings.steps)
        with torch.device("meta"):  # shapes, no memory
            body: Any = self._bare(self.source.store.image)
        self._network_alone: str | None = getattr(body, "why_not_stackable", None)
        self.tuning.check_network(body)
        sizes = replace(self._sizes(self.folds[0]), n_features=body.n_features)
        if caution := self.algorithm.caution(sizes, self.hparams):
            log.warning("%s: %s", self.spec.algorithm, caution)

    @property
    def hparams(self) -> Mapping[str, Any]:
        """Resolved values of every hyperparameter that is read."""
        return self.spec.hparams

    @property
    def batch_size(self) -> int:
        """Images per training environment and step."""
        size: int = self.hparams["batch_size"]
        return size

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and hyperparameters."""
        return torch.float64 if self.settings.precision == "64-true" else torch.float32

    def _run(self, fold: Fold) -> Run:
        environments = environments_of(fold, self.environments)
        data = EnvironmentData(
            environments,
            fold.training,
            recipes_of(fold, environments, self.settings.eval_subsets, self.group_size > 0),
            steps=self.settings.steps,
            eval_every=self.settings.eval_every,
            batch_size=self.batch_size,
            eval_batch_size=self.settings.eval_batch_size,
            seed=self.spec.seed,
            group_size=self.group_size,
        )
        return Run(self, fold, self.planned.run_spec(fold), self.planned.run_folder(fold), data)

    @property
    def group_size(self) -> int:
        """Images that a prediction sees together; 0 where each image is predicted by itself."""
        return self.algorithm.group_size(self.hparams)

    def _cached(self) -> Environments:
        refuse_cached(self.algorithm, self.tuning, self.settings)
        networks, _ = self._networks(self.folds[0])
        featurizer: Any = networks["featurizer"]
        asked = asked_of(self.folds, self.source, self.settings.eval_subsets, self.group_size > 0)
        return cached_features(self.source, featurizer, self.tuning, self.settings, asked)

    def averaging(self) -> Averaging | None:
        """What averages one run's weights, if anything does."""
        if "_target_" not in self.config["averaging"]:
            return None
        callback: Averaging = build(without(self.config, "averaging", "name"), "averaging")
        return callback

    @cached_property
    def resolved_yaml(self) -> str:
        """The study's configuration, every reference resolved."""
        return OmegaConf.to_yaml(OmegaConf.create(dict(self.config)))

    @cached_property
    def n_images(self) -> int:
        """Every training image has a number below it."""
        return self.source.table.n_images

    def why_not_stacked(self) -> str | None:
        """Why runs of this study cannot train together with others; None when they can."""
        settings, averaging = self.settings, self.config["averaging"]
        network = self._network_alone
        drops = {**self.hparams, **self.config["backbone"]}
        dropout = any("dropout" in key and drops[key] for key in drops)
        cached = self.tuning.cache_features and self.tuning.freeze_stages == ALL
        reasons = (
            (any(fold.membership for fold in self.folds), f"protocol={self.spec.protocol} scores others in each run"),
            (not self.algorithm.stackable, self.algorithm.why_not_stackable),
            (network and not cached, str(network)),
            (self.tuning.layer_decay is not None, "tuning.layer_decay gives each layer a learning rate of its own"),
            ("_target_" in averaging, f"averaging={averaging['name']} follows one run at a time"),
            (self.spec.callbacks, f"callbacks.{next(iter(self.spec.callbacks), '')} may change one run at a time"),
            (settings.precision not in TRUE, f"trainer.precision={settings.precision} needs Lightning's own step"),
            (settings.devices > 1, f"trainer.devices={settings.devices} shares one run among processes"),
            (settings.accumulate > 1, f"trainer.accumulate={settings.accumulate} saves memory where one run is large"),
            (settings.channels_last, "trainer.channels_last=true lays out the convolutions of one run"),
            (dropout, "dropout draws from a generator that runs of a stack would share"),
        )
        return next((reason for holds, reason in reasons if holds), None)

    def module(self, fold: Fold) -> SingleRun:
        """A freshly initialized training module for one fold."""
        networks, sizes = self._networks(fold)
        featurizer: Any = networks["featurizer"]
        for name in self.algorithm.featurizers(sizes, self.hparams):
            body: Any = networks[name]
            self.tuning.freeze(networks, name, body.stages())
        if self.tuning.cache_features:
            featurizer.first_stage = self.tuning.count(len(featurizer.stages()))
            sizes = replace(sizes, image=self.environments.store.image)
        settings = self.settings
        if settings.channels_last:
            networks.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        rule = UpdateRule(
            settings.steps,
            settings.schedule,
            warmup_steps=settings.warmup_steps,
            layer_decay=self.tuning.layer_decay,
            gradient_clip=settings.gradient_clip,
            accumulate=settings.accumulate,
            head_steps=self.tuning.head_steps,
            head_lr=self.tuning.head_lr,
            sharpness=sharpness_of(self.config),
        )
        algorithm = self.algorithm(sizes, self.hparams)
        return SingleRun(algorithm, networks, seed=self.spec.seed, rule=rule, dtype=self.dtype)

    def _networks(self, fold: Fold) -> tuple[Networks, Sizes]:
        """Networks with their initial weights."""
        networks, sizes = build_networks(
            self._featurizer,
            self._sizes(fold),
            lambda sizes: self.algorithm.networks_needed(sizes, self.hparams),
            self.algorithm.extra_channels,
            self.spec.seed,
        )
        unit_length = bool(getattr(networks["featurizer"], "unit_length", False))
        self.head.set(networks["classifier"], self.planned.weights, self.source.catalog.classes, unit_length)
        return networks, sizes

    def _sizes(self, fold: Fold) -> Sizes:
        """All but the number of features."""
        seen = environments_of(fold, self.source)
        return Sizes(
            n_features=0,
            n_classes=self.source.info.n_classes,
            n_envs=len(fold.training),
            image=self.source.store.image,
            n_steps=self.settings.steps,
            n_images=self.n_images,
            n_trained_on=sum(len(seen.table.subset(env, "train")) for env in fold.training),
            pixel_mean=self.source.catalog.preprocessing.mean,
            pixel_std=self.source.catalog.preprocessing.std,
        )

    def _featurizer(self, image: tuple[int, ...]) -> nn.Module:
        featurizer = self._bare(image)
        self.planned.weights.load(featurizer)
        return featurizer

    def _bare(self, image: tuple[int, ...]) -> nn.Module:
        """The featurizer before it gets initial weights."""
        featurizer: nn.Module = build({"backbone": self.featurizer_keys()}, "backbone", image=image)
        return featurizer

    def featurizer_keys(self) -> dict[str, Any]:
        """``_target_`` of the featurizer and its arguments but the shape of the image."""
        wanted = self.config["backbone"].get("hparams") or {}  # constructor's argument -> hyperparameter
        taken = {key: self.hparams[hparam] for key, hparam in wanted.items()}
        return {**without(self.config, "backbone", "name", "hparams")["backbone"], **taken}


def studies_of(planned: Sequence[PlannedStudy]) -> list[Study]:
    """Studies ready to train; those over the same dataset share its images.

    Raises:
        ConfigError, DataError, WeightsError: one of them cannot work.
    """
    sources: dict[int, Environments] = {}
    studies = []
    for plan in planned:
        study = Study(plan, sources.get(id(plan.dataset)))
        sources[id(plan.dataset)] = study.source
        studies.append(study)
    return studies

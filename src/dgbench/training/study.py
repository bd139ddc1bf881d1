"""A study ready to train: the images, the networks and the runs of one dataset, algorithm and seed."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn

from dgbench.batches import ErrorRecipe
from dgbench.callbacks.averaging import Averaging
from dgbench.callbacks.loggers import RunInfo
from dgbench.callbacks.users import check_callbacks
from dgbench.containers import Networks
from dgbench.data.description import DatasetInfo
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.minibatches import EnvironmentData
from dgbench.data.partial import partial
from dgbench.errors import ConfigError
from dgbench.network_specs import Sizes
from dgbench.networks.build import build_networks
from dgbench.networks.initial_heads import RandomHead
from dgbench.objectives.sharpness import SAM
from dgbench.plan.building import InitialWeights, build, built, class_at, without
from dgbench.plan.folds import Fold
from dgbench.plan.identity import callback_values
from dgbench.plan.settings import TrainerSettings
from dgbench.plan.studies import PlannedStudy
from dgbench.records.evaluations import Evaluations
from dgbench.records.rows import RunIdentity
from dgbench.records.spec import RunSpec, code_version
from dgbench.training.modules import SingleRun
from dgbench.training.modules.factory import algorithm_class
from dgbench.training.modules.predicting import OneRun
from dgbench.training.optimizers import UpdateRule
from dgbench.training.tuning import ALL, FULL_PRECISION, Tuning

RGB = 3  # channels
IN_PARTS = ("accumulate", "devices")  #: keys of ``conf/trainer`` that cut a minibatch
#: what to choose for each kind of images
FIXES = {
    "vectors": "choose backbone=feature_mlp, linear or mlp",
    "pictures": "choose a backbone for pictures, such as mlp or mnist_cnn, or dataset=features",
}
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

    @property
    def info(self) -> RunInfo:
        """What a logger gets to know of it; its id is its hash, so a resumed one continues."""
        study, job_type = self.study, f"fold-{self.fold.name}"
        name = study.folder.name
        config = {**study.columns(), "fold": self.fold.name, "held_out": ", ".join(self.fold.held_out)}
        return RunInfo(self.folder, self.hash, f"{name}/{job_type}", job_type, name, config, [*study.tags(), "fold"])

    @cached_property
    def evaluations(self) -> Evaluations:
        """When it is evaluated, and on what."""
        settings, averaging = self.study.settings, self.study.averaging()
        # a rule whose class says that it is never finished, as a moving average, ends no training
        ends = averaging is not None and getattr(type(averaging.rule), "finished", None) is not False
        return Evaluations(
            steps=settings.steps,
            every=0 if averaging and averaging.rule.final_only else settings.eval_every,
            test_always=settings.eval_test == "always",
            may_end_early=ends or bool(self.study.config["callbacks"]),
            scored=scored_by(self.data.recipes),
        )

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
        check_network(self.config, planned.info, planned.weights)
        self.head: RandomHead = build({"head": self.config["head"]}, "head")
        self.head.check()
        self.algorithm = algorithm_class(self.config["algorithm"]["objective"])
        if planned.info.kind == "vectors" and (reason := self.algorithm.why_not_vectors):
            raise ConfigError(
                f"algorithm={self.config['algorithm']['name']} cannot train on vectors of features: {reason}; choose "
                "another algorithm"
            )
        self.settings = TrainerSettings(**self.config["trainer"])
        self.tuning: Tuning = build(self.config, "tuning")
        self.source: Environments = source or built(planned.dataset)
        self.info = self.source.info
        self._check()
        self.environments = self._cached() if self.tuning.cache_features else self.source
        self.runs = [self._run(fold) for fold in self.folds]

    def _check(self) -> None:
        """Refuse what cannot be built, or would turn a method into another one, before anything is written."""
        self.averaging()
        check_callbacks(self.config["callbacks"])
        self._check_combination()
        self.tuning.check(self.settings.steps)
        with torch.device("meta"):  # shapes, no memory
            body: Any = self._bare(self.source.store.image)
        self._network_alone: str | None = getattr(body, "why_not_stackable", None)
        self.tuning.check_network(body)
        sizes = replace(self._sizes(self.folds[0]), n_features=body.n_features)
        if caution := self.algorithm.caution(sizes, self.hparams):
            log.warning("%s: %s", self.spec.algorithm, caution)

    def _check_combination(self) -> None:
        """Refuse sharpness-aware updates without one loss, and parts of a minibatch where a method needs the whole."""
        name, algorithm, sharpness = self.config["algorithm"]["name"], self.algorithm, self._sharpness()
        label = f"sharpness={self.config['sharpness']['name']}"
        if sharpness and algorithm.why_not_sharp:
            raise ConfigError(
                f"{label} cannot go around algorithm={name}: {algorithm.why_not_sharp}; "
                "set sharpness=none or choose another algorithm"
            )
        for key in IN_PARTS:
            n = getattr(self.settings, key)
            if n > 1 and sharpness:
                raise ConfigError(
                    f"{label} cannot go with trainer.{key}={n}: each part of a minibatch would climb on its own, which "
                    f"is another method; set trainer.{key}=1 or sharpness=none"
                )
            if n > 1 and algorithm.why_not_in_parts:
                raise ConfigError(
                    f"algorithm={name} cannot go with trainer.{key}={n}: {algorithm.why_not_in_parts}, which is "
                    f"another method; set trainer.{key}=1 or choose another algorithm"
                )

    def _sharpness(self) -> SAM | None:
        """How updates look at raised weights, if they do."""
        if "_target_" not in self.config["sharpness"]:
            return None
        method: SAM = build(without(self.config, "sharpness", "name"), "sharpness")
        return method

    def columns(self) -> dict[str, Any]:
        """The configuration, and flat names for what a dashboard groups and filters by."""
        names = {f"{key}_name": self.config[key]["name"] for key in ("dataset", "algorithm", "backbone", "protocol")}
        labels = {"space": self.spec.space, "draw": self.spec.draw, "trial": self.spec.trial}
        return {**self.config, **names, **labels, "hyperparameters": dict(self.hparams), "code": code_version()}

    def tags(self) -> list[str]:
        """Tags of its runs on a dashboard."""
        searched = ["search"] if self.spec.draw or self.config["hparams"].get("scheme") is not None else []
        return [self.info.name, self.spec.algorithm, *searched]

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
        """The environments as what is trained of the featurizer sees them, for every image that some fold needs."""
        self.tuning.check_cache(self.algorithm, self.settings.precision)
        networks, _ = self._networks(self.folds[0])
        featurizer: Any = networks["featurizer"]
        eval_sets: list[EvalSet] = []
        for fold in self.folds:
            seen = environments_of(fold, self.source)
            eval_sets += [EvalSet(torch.from_numpy(seen.table.subset(env, "train"))) for env in fold.training]
            recipes = recipes_of(fold, seen, self.settings.eval_subsets, self.group_size > 0)
            names = dict.fromkeys(name for recipe in recipes for name in recipe.mixture)
            eval_sets += seen.eval_sets(list(names)).values()
        return self.tuning.cached(self.source, featurizer, self.dtype, eval_sets)

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
            (
                settings.precision not in FULL_PRECISION,
                f"trainer.precision={settings.precision} needs Lightning's own step",
            ),
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
            sharpness=self._sharpness(),
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


def check_network(config: Mapping[str, Any], info: DatasetInfo, weights: InitialWeights) -> None:
    """Refuse a featurizer or initial weights that do not go with one another or with the images.

    Weights are fetched, before anything that takes longer.

    Args:
        config: plain resolved values by top-level key.
        info: of the dataset.
        weights: that ``config`` names.

    Raises:
        ConfigError: it takes pictures and the dataset holds vectors, or the other way around.
        WeightsError: the weights cannot be had, or do not fit.
    """
    takes = getattr(class_at(config["backbone"]["_target_"]), "takes", None)  # a user's own may not say
    if takes is not None and info.kind not in takes:
        raise ConfigError(
            f"backbone={config['backbone']['name']} takes {' or '.join(takes)}, and dataset={info.name} holds "
            f"{info.kind}; {FIXES[info.kind]}"
        )
    image, keys = (RGB, *[weights.images.input_size] * 2), without(config, "backbone", "name", "hparams")
    weights.check(lambda: build(keys, "backbone", image=image))


def environments_of(fold: Fold, environments: Environments) -> Environments:
    """The environments as this fold sees them."""
    if fold.membership is None:
        return environments
    return partial(environments, fold.membership.training, fold.membership.tested)


def scored_by(recipes: Sequence[ErrorRecipe]) -> dict[str, list[str]]:
    """The environments that are scored, by subset."""
    scored: dict[str, list[str]] = defaultdict(list)
    for recipe in recipes:
        scored[recipe.subset].append(recipe.env)
    return dict(scored)


def recipes_of(fold: Fold, environments: Environments, subsets: Sequence[str], grouped: bool) -> list[ErrorRecipe]:
    """Errors to record for this fold, in the environments that concern it.

    An environment that is tested though it was trained on (``protocol=target_oracle``) is tested on its ``val`` images
    where the dataset keeps none for ``test``.

    Args:
        fold: what it trains on and is tested in.
        environments: as the fold sees them.
        subsets: which of ``train``, ``val`` and ``test``.
        grouped: predictions depend on the images that are scored together.
    """
    recipes = environments.table.error_recipes(fold.everywhere, subsets, fold.training, grouped)
    if fold.everywhere:
        return recipes
    recipes = [recipe for recipe in recipes if recipe.env in fold.scored]
    tested = {recipe.env for recipe in recipes if recipe.subset == "test"}
    lacking = set(fold.tested) & set(fold.training) - tested
    return recipes + [ErrorRecipe(s.env, "test", s.mixture) for s in recipes if s.subset == "val" and s.env in lacking]

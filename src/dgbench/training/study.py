"""A study ready to train: the images, networks and runs of one dataset, algorithm and seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn

from dgbench.batches import ErrorRecipe
from dgbench.callbacks.loggers import RunInfo
from dgbench.containers import Networks
from dgbench.data.description import DatasetInfo
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.majority import with_majority_errors
from dgbench.data.minibatches import EnvironmentData
from dgbench.data.partial import partial
from dgbench.network_specs import Sizes
from dgbench.plan.building import built
from dgbench.plan.folds import Fold
from dgbench.plan.hyperparameters import without_effect
from dgbench.plan.identity import callback_values
from dgbench.plan.settings import TrainerSettings
from dgbench.plan.studies import PlannedStudy
from dgbench.records.evaluations import Evaluations
from dgbench.records.run_identity import RunIdentity
from dgbench.records.spec import RunSpec, code_version
from dgbench.records.wandb_runs import comparison
from dgbench.training.blueprint import Blueprint
from dgbench.training.modules import SingleRun
from dgbench.training.modules.predicting import OneRun
from dgbench.training.processes import make_trainer
from dgbench.training.unlearnable import trained_classes, unlearnable

#: what rows say of a run as its specification does
OF_SPEC = (
    "algorithm",
    "draw",
    "space",
    "trial",
    "backbone",
    "init",
    "protocol",
    "seed",
    "user_code",
)


@dataclass(frozen=True)
class ReadyRun:
    """One model to train: a fold of a study."""

    study: ReadyStudy
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
        """What messages call the run."""
        return f"{self.study.folder.name} fold {self.fold.name}"

    @property
    def info(self) -> RunInfo:
        """What a logger gets to know of the run.

        Its id is its hash, so the log of a resumed run continues.
        """
        study = self.study
        name = study.folder.name
        job_type = f"fold-{self.fold.name}"
        config = {
            **study.columns(),
            "compared_as": study.compared_as(),
            "fold": self.fold.name,
            "held_out": ", ".join(self.fold.held_out),
        }
        return RunInfo(
            folder=self.folder,
            sweep=study.folder.parent,
            id=self.hash,
            name=f"{name}/{job_type}",
            job_type=job_type,
            group=name,
            config=config,
            tags=[*study.tags(), "fold"],
        )

    @cached_property
    def evaluations(self) -> Evaluations:
        """When it is evaluated, and on what."""
        settings = self.study.settings
        averaging = self.study.averaging()
        ends = averaging is not None and getattr(averaging.rule, "ends_training", True)
        final_only = averaging is not None and averaging.rule.final_only
        return Evaluations(
            steps=settings.steps,
            every=0 if final_only else settings.eval_every,
            test_always=settings.eval_test == "always",
            may_end_early=ends or bool(self.study.config["callbacks"]),
            scored=scored_by(self.data.recipes),
        )

    def identity(self, module: OneRun | None) -> RunIdentity:
        """Build what the rows of the run say of it.

        Args:
            module: holds its networks; without it no parameters are counted.
        """
        study = self.study
        config = study.config
        environments = self.data.environments
        trained = trained_classes(environments, self.fold.training)
        n_parameters = n_trainable = folds = None
        if module is not None:
            n_parameters = sum(p.numel() for p in module.networks.parameters())
            n_trainable = sum(p.numel() for p in module.networks.params().values())
        if self.fold.folds is not None:
            folds = [list(tested) for tested in self.fold.folds]
        return RunIdentity(
            run=self.hash,
            **study.info.facts(),
            **{name: getattr(self.spec, name) for name in OF_SPEC},
            hparams=self._hparams(),
            averaging=config["averaging"]["name"],
            head=self.spec.head.get("name", "random"),
            tuning=study.tuning.name,
            seed_moves=config["seed_moves"],
            n_classes=study.info.n_classes or None,
            n_parameters=n_parameters,
            n_trainable=n_trainable,
            fold=self.fold.name,
            held_out=list(self.fold.held_out),
            folds=folds,
            beyond=study.info.beyond,
            grouped=study.group_size > 0,
            unlearnable=unlearnable(environments, self.data.recipes, trained),
            code=code_version(),
        )

    def _hparams(self) -> dict[str, Any]:
        """Collect what rows show as hyperparameters; their order is that of the keys in a row."""
        settings = self.study.settings
        hparams = {**self.spec.hparams, "steps": settings.steps, **settings.changed()}
        rule = self.study.config["averaging"].get("rule") or {}
        sharpness = self.spec.sharpness if "_target_" in self.spec.sharpness else {}
        tuning = {key: self.spec.tuning[key] for key in OF_LOW_RANK if key in self.spec.tuning}
        for group, values in (("averaging", rule), ("sharpness", sharpness), ("tuning", tuning)):
            for key, value in values.items():
                if key != "_target_":
                    hparams[f"{group}.{key}"] = value
        return {**hparams, **callback_values(self.spec.callbacks)}


OF_LOW_RANK = ("rank", "alpha", "targets")  #: keys of ``conf/tuning`` that rows show


class ReadyStudy(Blueprint):
    """Everything that the runs of one study share.

    Args:
        planned: the study as it was planned.
        source: the environments of another study over the same dataset; None builds them.
        tell: says what was understood of the dataset; None says nothing.

    Raises:
        ConfigError, DataError, WeightsError: something in the configuration cannot work; nothing
            was trained.
    """

    def __init__(
        self,
        planned: PlannedStudy,
        source: Environments | None = None,
        tell: Callable[[DatasetInfo], None] | None = None,
    ) -> None:
        super().__init__(planned)
        self.folder = planned.folder
        if source is None and tell is not None and planned.info.present:
            tell(planned.info)
        self.source: Environments = source or built(planned.dataset)
        if source is None and tell is not None and not planned.info.present:
            tell(self.source.info)
        self.info = self.source.info
        self.environments = self._cached() if self.tuning.cache_features else self.source
        self.runs = [self._run(fold) for fold in self.folds]

    def cautions(self) -> Iterator[str]:
        """Yield a line for each setting that takes part of the study's method away.

        Settings of little use are named too.
        """
        cautions = [*without_effect(self.config, self.hparams)]
        of_values = self.algorithm.caution(self.bare_sizes, self.hparams)
        if of_values:
            cautions.append(of_values)
        for caution in cautions:
            yield f"{self.spec.algorithm}: {caution}"

    def columns(self) -> dict[str, Any]:
        """Return the configuration, with flat names for what a dashboard groups and filters by."""
        groups = ("dataset", "algorithm", "backbone", "protocol")
        names = {f"{key}_name": self.config[key]["name"] for key in groups}
        labels = {"space": self.spec.space, "draw": self.spec.draw, "trial": self.spec.trial}
        of_study = {
            "searched": self.is_searched,
            "hyperparameters": dict(self.hparams),
            "code": code_version(),
        }
        return {**self.config, **names, **labels, **of_study}

    def tags(self) -> list[str]:
        """List the tags of the study's runs on a dashboard."""
        tags = [self.info.name, self.spec.algorithm]
        return [*tags, "search"] if self.is_searched else tags

    @property
    def is_searched(self) -> bool:
        """Whether its hyperparameters are one draw of a search."""
        return bool(self.spec.draw) or self.config["hparams"].get("scheme") is not None

    def compared_as(self, selection: str = "") -> str:
        """Name what may be averaged on a dashboard.

        These are studies of one setting and algorithm, which differ in their seeds.

        Args:
            selection: what chose the steps of their errors; "" if all steps are shown.
        """
        return comparison(asdict(self.runs[0].identity(None)), selection)

    def logged_as(self, selection: str = "") -> RunInfo:
        """Return what a logger gets to know of the study as a whole."""
        name = self.folder.name
        config = {
            **self.columns(),
            "compared_as": self.compared_as(selection),
            "selection": selection,
        }
        return RunInfo(
            folder=self.folder,
            sweep=self.folder.parent,
            id=self.spec.digest,
            name=name,
            job_type="study",
            group=name,
            config=config,
            tags=[*self.tags(), "study"],
        )

    @property
    def batch_size(self) -> int:
        """Images per training environment and step."""
        size: int = self.hparams["batch_size"]
        return size

    def _run(self, fold: Fold) -> ReadyRun:
        environments = environments_of(fold, self.environments)
        data = EnvironmentData(
            environments,
            fold.training,
            self._recipes(fold, environments),
            steps=self.settings.steps,
            eval_every=self.settings.eval_every,
            batch_size=self.batch_size,
            eval_batch_size=self.settings.eval_batch_size,
            seed=self._seed_for("order"),
            group_size=self.group_size,
            environments_per_step=self.settings.environments_per_step,
            repeats=self.settings.small_environments == "repeat",
            sampling=self.settings.sampling,
        )
        return ReadyRun(
            self, fold, self.planned.run_spec(fold), self.planned.run_folder(fold), data
        )

    def _recipes(self, fold: Fold, environments: Environments) -> list[ErrorRecipe]:
        """List the errors to record for a fold; see :func:`recipes_of`."""
        return recipes_of(fold, environments, self.settings.eval_subsets, self.group_size > 0)

    @property
    def group_size(self) -> int:
        """Images that a prediction sees together, or 0 if each image is predicted by itself."""
        return self.algorithm.group_size(self.hparams)

    def _cached(self) -> Environments:
        """Replace the images that some fold needs by features.

        These enter the trained part of the featurizer.
        """
        networks, _ = self.networks(self.folds[0])
        featurizer: Any = networks["featurizer"]
        eval_sets: list[EvalSet] = []
        for fold in self.folds:
            environments = environments_of(fold, self.source)
            for env in fold.training:
                positions = environments.table.subset(env, "train")
                eval_sets.append(EvalSet(torch.from_numpy(positions)))
            names: dict[str, None] = {}  # in the order of their first use
            for recipe in self._recipes(fold, environments):
                names.update(dict.fromkeys(recipe.mixture))
            eval_sets += environments.eval_sets(list(names)).values()
        return self.tuning.cached(self.source, featurizer, self.dtype, eval_sets)

    @cached_property
    def resolved_yaml(self) -> str:
        """The study's configuration, every reference resolved."""
        return OmegaConf.to_yaml(OmegaConf.create(dict(self.config)))

    @cached_property
    def n_images(self) -> int:
        """Bound on the numbers of training images, all of which are below it."""
        return self.source.table.n_images

    def module(self, fold: Fold) -> SingleRun:
        """Build a freshly initialized training module for one fold."""
        networks, sizes = self.networks(fold)
        return self.trained(SingleRun, networks, sizes, self.environments.store.image)

    def networks(self, fold: Fold) -> tuple[Networks, Sizes]:
        networks, sizes = super().networks(fold)
        unit_length = bool(getattr(networks["featurizer"], "unit_length", False))
        classes = self.source.catalog.classes
        self.head.set(networks["classifier"], self.planned.weights, classes, unit_length)
        return networks, sizes

    def sizes(self, fold: Fold) -> Sizes:
        table = environments_of(fold, self.source).table
        preprocessing = self.source.catalog.preprocessing
        return Sizes(
            n_features=0,
            n_classes=self.source.info.n_classes,
            n_envs=self.settings.minibatches(len(fold.training)),
            image=self.source.store.image,
            n_steps=self.settings.steps,
            n_images=self.n_images,
            n_trained_on=sum(len(table.subset(env, "train")) for env in fold.training),
            pixel_mean=preprocessing.mean,
            pixel_std=preprocessing.std,
            n_drawn_from=self._drawn_from(fold),
        )

    def featurizer(self, image: tuple[int, ...]) -> nn.Module:
        featurizer = super().featurizer(image)
        self.planned.weights.load(featurizer)
        return featurizer


def check_devices(planned: Sequence[PlannedStudy]) -> None:
    """Refuse what this machine has not, before an image is decoded.

    Raises:
        ConfigError: no such device here, or a precision that it cannot compute in.
    """
    trainers = [plan.config["trainer"] for plan in planned]
    different = {(keys["device"], keys["precision"]): keys for keys in trainers}
    for keys in different.values():
        make_trainer(TrainerSettings(**keys), [], 1)


def studies_of(
    planned: Sequence[PlannedStudy], tell: Callable[[DatasetInfo], None] | None = None
) -> list[ReadyStudy]:
    """Prepare studies for training; those over the same dataset share its images.

    Args:
        planned: the studies as they were planned.
        tell: says what was understood of each dataset; called when nothing else is left to be
            refused without images.

    Raises:
        ConfigError, DataError, WeightsError: a study cannot work.
    """
    check_devices(planned)
    sources: dict[int, Environments] = {}
    studies = []
    for plan in planned:
        study = ReadyStudy(plan, sources.get(id(plan.dataset)), tell)
        sources[id(plan.dataset)] = study.source
        studies.append(study)
    return studies


def environments_of(fold: Fold, environments: Environments) -> Environments:
    """Restrict the environments to what this fold sees."""
    if fold.membership is None:
        return environments
    return partial(environments, fold.membership.training, fold.membership.tested)


def scored_by(recipes: Sequence[ErrorRecipe]) -> dict[str, list[str]]:
    """List the environments that are scored, by subset."""
    scored: dict[str, list[str]] = defaultdict(list)
    for recipe in recipes:
        scored[recipe.subset].append(recipe.env)
    return dict(scored)


def recipes_of(
    fold: Fold, environments: Environments, subsets: Sequence[str], grouped: bool
) -> list[ErrorRecipe]:
    """List the errors to record for this fold, in the environments that concern it.

    An environment that is tested though it was trained on (``protocol=target_oracle``) is tested on
    its ``val`` images where the dataset keeps none for ``test``.

    Args:
        fold: what it trains on and is tested in.
        environments: as the fold sees them.
        subsets: which of ``train``, ``val`` and ``test``.
        grouped: predictions depend on the images that are scored together.
    """
    recipes = environments.table.error_recipes(fold.everywhere, subsets, fold.training, grouped)
    if not fold.everywhere:
        recipes = [recipe for recipe in recipes if recipe.env in fold.scored]
        tested = {recipe.env for recipe in recipes if recipe.subset == "test"}
        lacking = set(fold.tested) & set(fold.training) - tested
        val = [recipe for recipe in recipes if recipe.subset == "val" and recipe.env in lacking]
        recipes += [ErrorRecipe(recipe.env, "test", recipe.mixture) for recipe in val]
    return with_majority_errors(recipes, environments, fold.training)

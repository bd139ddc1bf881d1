"""Say which images a fold trains on and which errors are recorded for it; cache features of a study's images."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

import torch

from dgbench.batches import ErrorRecipe
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.partial import partial
from dgbench.data.store.cached_features import CachedFeatures
from dgbench.errors import ConfigError
from dgbench.networks.featurizer import Featurizer, FirstStages
from dgbench.objectives.contract import Algorithm
from dgbench.plan.folds import Fold
from dgbench.plan.settings import TrainerSettings
from dgbench.training.modules.predicting import activations, images_at_once
from dgbench.training.tuning import Tuning


def environments_of(fold: Fold, environments: Environments) -> Environments:
    """The environments as this fold sees them."""
    if fold.membership is None:
        return environments
    return partial(environments, fold.membership.training, fold.membership.tested)


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


_KNOWN: WeakKeyDictionary[Environments, dict[str, Environments]] = WeakKeyDictionary()


def refuse_cached(algorithm: type[Algorithm], tuning: Tuning, trainer: TrainerSettings) -> None:
    """Say what does not go with cached features.

    Raises:
        ConfigError: the algorithm needs images, nothing is frozen, or half precision was asked for.
    """
    reason = algorithm.why_not_cacheable
    if not reason and algorithm.extra_channels:
        reason = f"it adds {algorithm.extra_channels} channel(s) to the images"
    if reason:
        raise ConfigError(f"{algorithm.__name__} cannot train on cached features: {reason}; "
                          "set tuning.cache_features=false")  # fmt: skip
    if tuning.freeze_stages == 0:
        raise ConfigError("tuning.cache_features=true, but nothing is frozen; choose tuning=lp or tuning=freeze")
    if trainer.precision not in ("32-true", "64-true"):
        raise ConfigError(
            f"tuning.cache_features=true computes features in full precision, which trainer.precision="
            f"{trainer.precision} would not give; set trainer.precision=32-true"
        )


def asked_of(folds: Sequence[Fold], source: Environments, subsets: Sequence[str], grouped: bool) -> list[EvalSet]:
    """Every image that some fold trains on or is scored on."""
    eval_sets: list[EvalSet] = []
    for fold in folds:
        seen = environments_of(fold, source)
        eval_sets += [EvalSet(torch.from_numpy(seen.table.subset(env, "train"))) for env in fold.training]
        names = dict.fromkeys(name for score in recipes_of(fold, seen, subsets, grouped) for name in score.mixture)
        eval_sets += seen.eval_sets(list(names)).values()
    return eval_sets


def cached_features(
    source: Environments, featurizer: Featurizer, tuning: Tuning, trainer: TrainerSettings, asked: Sequence[EvalSet]
) -> Environments:
    """The environments as the trained part of a featurizer sees them; studies with the same frozen weights share them.

    Raises:
        ConfigError: they augment, or the features are too large.
    """
    frozen = FirstStages(featurizer, tuning.count(len(featurizer.stages())))
    frozen.to(torch.float64 if trainer.precision == "64-true" else torch.get_default_dtype())
    content = hashlib.sha256(f"{frozen.count}".encode())
    indices, features = (
        [scored.indices for scored in asked],
        [scored.feature for scored in asked if scored.feature is not None],
    )
    for value in [*frozen.state_dict().values(), *indices, *features]:
        content.update(value.cpu().contiguous().numpy().tobytes())
    key = f"{content.hexdigest()} {tuning.cache_gb} {tuning.cache_dir}"
    known = _KNOWN.setdefault(source, {})
    if key not in known:
        at_once = functools.partial(images_at_once, activations(frozen, source.store.image))
        folder = None if tuning.cache_dir is None else Path(tuning.cache_dir)
        store = CachedFeatures(source, frozen, at_once, asked, tuning.cache_gb, folder)
        known[key] = replace(source, store=store)
    return known[key]

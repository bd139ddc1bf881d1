"""A study that trains on features of the frozen part of its networks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import torch

from dgbench.data.environments import Environments, EvalSet
from dgbench.data.store.cached_features import CachedFeatures
from dgbench.errors import ConfigError
from dgbench.networks.featurizer import Featurizer, FirstStages
from dgbench.objectives.contract import Algorithm
from dgbench.plan.folds import Fold
from dgbench.plan.settings import TrainerSettings
from dgbench.training.activations import activations, images_at_once
from dgbench.training.fold_data import environments_of, recipes_of
from dgbench.training.tuning import Tuning

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
    asked: list[EvalSet] = []
    for fold in folds:
        seen = environments_of(fold, source)
        asked += [EvalSet(torch.from_numpy(seen.table.subset(env, "train"))) for env in fold.training]
        names = dict.fromkeys(name for score in recipes_of(fold, seen, subsets, grouped) for name in score.mixture)
        asked += seen.eval_sets(list(names)).values()
    return asked


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
    indices, features = [each.indices for each in asked], [each.feature for each in asked if each.feature is not None]
    for value in [*frozen.state_dict().values(), *indices, *features]:
        content.update(value.cpu().contiguous().numpy().tobytes())
    key = f"{content.hexdigest()} {tuning.cache_gb} {tuning.cache_dir}"
    known = _KNOWN.setdefault(source, {})
    if key not in known:
        at_once = partial(images_at_once, activations(frozen, source.store.image))
        folder = None if tuning.cache_dir is None else Path(tuning.cache_dir)
        store = CachedFeatures(source, frozen, at_once, asked, tuning.cache_gb, folder)
        known[key] = replace(source, store=store)
    return known[key]

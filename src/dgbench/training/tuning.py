"""What of a network is trained: fine-tuning, linear probing, or the stages behind frozen ones.

Features of frozen stages may be kept.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

import torch

from dgbench.containers import Networks
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.store.cached_features import CachedFeatures
from dgbench.errors import ConfigError
from dgbench.networks.featurizer import Featurizer, FirstStages, Stage
from dgbench.objectives.contract import Algorithm
from dgbench.plan.settings import TuningSettings
from dgbench.training.modules.predicting import activations, images_at_once

ALL = "all"
FULL_PRECISION = ("32-true", "64-true")
_CACHED: WeakKeyDictionary[Environments, dict[str, Environments]] = WeakKeyDictionary()


class Tuning(TuningSettings):
    """Freezes the beginning of the featurizer, or trains what stands behind it first.

    What is frozen takes no gradient, is in no optimizer and under no weight decay, and computes as
    in evaluation: BatchNorm uses the statistics of its initial weights, dropout is off (Yu et al.,
    2024). Fields are the keys of ``conf/tuning``, which says what each means.
    """

    def check_network(self, featurizer: Featurizer) -> None:
        """Refuse a featurizer of which ``freeze_stages`` stages cannot be frozen as it is built.

        Raises:
            ConfigError: with the reason.
        """
        if self.freeze_stages == 0:
            return
        reason = getattr(featurizer, "why_not_frozen", None)
        if reason:
            raise ConfigError(
                f"tuning={self.name} cannot freeze this backbone: {reason}, or tuning=ft"
            )
        self.count(len(featurizer.stages()))

    def count(self, stages: int) -> int:
        """Count how many of ``stages`` stages are frozen.

        Raises:
            ConfigError: more than there are, or all, which is linear probing.
        """
        if self.freeze_stages == ALL:
            return stages
        if int(self.freeze_stages) >= stages:
            raise ConfigError(
                f"tuning.freeze_stages={self.freeze_stages} leaves nothing to train of a "
                f"{stages}-stage backbone; give at most {stages - 1}, or tuning=lp to train the "
                "classifier alone"
            )
        return int(self.freeze_stages)

    def freeze(self, networks: Networks, name: str, stages: Sequence[Stage]) -> None:
        """Freeze the parts of a featurizer that are not to be trained.

        Args:
            networks: all networks.
            name: of the featurizer.
            stages: all of its stages.

        Raises:
            ConfigError: the featurizer has not that many stages.
        """
        count = self.count(len(stages))
        if self.freeze_stages == ALL:
            networks.freeze([networks[name]], networks[name].parameters())
        for stage in stages[:count]:
            networks.freeze(stage.modules, stage.parameters())

    def check_cache(self, algorithm: type[Algorithm], precision: str) -> None:
        """Refuse an algorithm, a precision or a tuning that does not go with cached features.

        Raises:
            ConfigError: the algorithm needs images, nothing is frozen, or half precision was asked
                for.
        """
        reason = algorithm.why_not_cacheable
        if not reason and algorithm.extra_channels:
            reason = f"it adds {algorithm.extra_channels} channel(s) to the images"
        if reason:
            raise ConfigError(
                f"{algorithm.__name__} cannot train on cached features: {reason}; set "
                "tuning.cache_features=false"
            )
        if self.freeze_stages == 0:
            raise ConfigError(
                "tuning.cache_features=true, but nothing is frozen; choose tuning=lp or "
                "tuning=freeze"
            )
        if precision not in FULL_PRECISION:
            raise ConfigError(
                "tuning.cache_features=true computes features in full precision, which "
                f"trainer.precision={precision} would not give; set trainer.precision=32-true"
            )

    def cached(
        self,
        source: Environments,
        featurizer: Featurizer,
        dtype: torch.dtype,
        eval_sets: Sequence[EvalSet],
    ) -> Environments:
        """Replace images by the features that enter the trained part of a featurizer.

        Equal frozen weights share them.

        Args:
            source: the environments with their images.
            featurizer: with its initial weights.
            dtype: of the features.
            eval_sets: every image that is asked for.

        Raises:
            ConfigError: the environments augment images, or the features are too large.
        """
        frozen = FirstStages(featurizer, self.count(len(featurizer.stages())))
        frozen.to(dtype)
        content = hashlib.sha256(f"{frozen.count}".encode())
        indices = [scored.indices for scored in eval_sets]
        features = [scored.feature for scored in eval_sets if scored.feature is not None]
        for value in [*frozen.state_dict().values(), *indices, *features]:
            content.update(value.cpu().contiguous().numpy().tobytes())
        key = f"{content.hexdigest()} {self.cache_gb} {self.cache_dir}"
        cached = _CACHED.setdefault(source, {})
        if key not in cached:
            at_once = functools.partial(images_at_once, activations(frozen, source.store.image))
            folder = None if self.cache_dir is None else Path(self.cache_dir)
            store = CachedFeatures(source, frozen, at_once, eval_sets, self.cache_gb, folder)
            cached[key] = replace(source, store=store)
        return cached[key]

"""What of a network is trained: everything, a head, late stages, or few parameters throughout.

Features of frozen stages may be kept.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dgbench.containers import Networks
from dgbench.data.environments import Environments, EvalSet
from dgbench.data.store.cached_features import CachedFeatures
from dgbench.errors import ConfigError
from dgbench.networks.featurizer import Featurizer, FirstStages, Stage, is_normalization
from dgbench.networks.low_rank import add_low_rank, check_reached, targets
from dgbench.objectives.contract import Algorithm
from dgbench.plan.settings import TuningSettings
from dgbench.seeding import derive
from dgbench.training.modules.predicting import activations, images_at_once

ALL = "all"
EVERYTHING, LORA, BIAS, NORM = "everything", "lora", "bias", "norm"
#: what a message calls the parameters that are trained
NAMED = {BIAS: "biases", NORM: "scales and shifts of normalization"}
FULL_PRECISION = ("32-true", "64-true")
_CACHED: WeakKeyDictionary[Environments, dict[str, Environments]] = WeakKeyDictionary()


class Tuning(TuningSettings):
    """Freezes the beginning of the featurizer, or trains what stands behind it first.

    What is frozen takes no gradient, is in no optimizer and under no weight decay, and computes as
    in evaluation: BatchNorm uses the statistics of its initial weights, dropout is off (Yu et al.,
    2024). Fields are the keys of ``conf/tuning``, which says what each means.
    """

    @property
    def trains_few(self) -> bool:
        """Whether few parameters of the featurizer are trained, throughout it."""
        return self.trains != EVERYTHING

    @property
    def low_rank_scale(self) -> float | None:
        """The factor alpha / r of low-rank parts, or None without any."""
        return self.alpha / self.rank if self.trains == LORA else None

    def check_algorithm(self, name: str, algorithm: type[Algorithm]) -> None:
        """Refuse an algorithm that low-rank parts would turn into another method.

        Raises:
            ConfigError: with the reason.
        """
        if self.trains == LORA and algorithm.why_not_low_rank:
            raise ConfigError(
                f"tuning={self.name} cannot be used with algorithm={name}: "
                f"{algorithm.why_not_low_rank}; set tuning=ft, or choose another algorithm"
            )

    def check_network(self, featurizer: Featurizer, image: Sequence[int]) -> None:
        """Refuse a featurizer of which something cannot be frozen or trained as it is built.

        Args:
            featurizer: on the meta device.
            image: shape of what it takes.

        Raises:
            ConfigError: with the reason.
        """
        if self.freeze_stages == 0 and self.trains != LORA:
            self._check_selected(featurizer)
            return
        reason = getattr(featurizer, "why_not_frozen", None)
        if reason:
            raise ConfigError(
                f"tuning={self.name} cannot freeze this backbone: {reason}, or tuning=ft"
            )
        if self.trains == LORA:
            shadow = deepcopy(featurizer)
            layers = targets(shadow, self.targets)
            add_low_rank(layers, self.rank, self.alpha)
            check_reached(shadow, layers, image)
        else:
            self.count(len(featurizer.stages()))

    def _check_selected(self, featurizer: Featurizer) -> None:
        """Refuse a featurizer without anything of the kind that is to be trained.

        Raises:
            ConfigError: it has none, or none that may change.
        """
        if self.trains != EVERYTHING and not self._selected(featurizer):
            raise ConfigError(
                f"tuning={self.name} trains the {NAMED[self.trains]} of the featurizer, and this "
                "backbone has none that may change; set tuning=lp to train the classifier alone, "
                "or choose another backbone or backbone.norm"
            )

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

    def _selected(self, featurizer: nn.Module) -> list[nn.Parameter]:
        """List the biases, or the scales and shifts of normalization, that may change."""
        selected = bias_terms if self.trains == BIAS else normalization_parameters
        return [parameter for parameter in selected(featurizer) if parameter.requires_grad]

    def narrow(self, networks: Networks, name: str, seed: int) -> None:
        """Freeze all of a featurizer but low-rank parts, biases, or scales and shifts.

        Nothing is done where everything is trained, or where an algorithm keeps a frozen copy.
        With low-rank parts BatchNorm stands still, as it has nothing to train; with biases, or
        scales and shifts, it computes as ``backbone.norm`` says.

        Args:
            networks: all networks.
            name: of the featurizer.
            seed: base seed of initial weights; the global generator is left as it was.
        """
        if self.trains == EVERYTHING or not networks.params(name):
            return
        body = networks[name]
        still: list[nn.Module] = []
        if self.trains == LORA:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive(seed, "low_rank", name))
                trained = add_low_rank(targets(body, self.targets), self.rank, self.alpha)
            still = [module for module in body.modules() if isinstance(module, _BatchNorm)]
        else:
            trained = self._selected(body)
        learning = {id(parameter) for parameter in trained}
        others = [parameter for parameter in body.parameters() if id(parameter) not in learning]
        networks.freeze(still, others)

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


def bias_terms(network: nn.Module) -> list[nn.Parameter]:
    """List the biases of all layers (BitFit, Ben Zaken et al., 2022).

    They are known by their names, ``bias`` or ``..._bias`` (timm's ``q_bias``), and shifts of
    normalization are among them.
    """
    biases = []
    for name, parameter in network.named_parameters():
        last = name.rpartition(".")[2]
        if last == "bias" or last.endswith("_bias"):
            biases.append(parameter)
    return biases


def normalization_parameters(network: nn.Module) -> list[nn.Parameter]:
    """List the scales and shifts of all layers that normalize (Frankle et al., 2021)."""
    parameters: list[nn.Parameter] = []
    for module in network.modules():
        if is_normalization(module):
            parameters += module.parameters(recurse=False)
    return parameters

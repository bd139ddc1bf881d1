"""What goes with what: algorithms, networks, kinds of images, initial weights, sharpness, minibatches in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hydra.utils import get_class
from torch import nn

from dgbench.data.description import DatasetInfo
from dgbench.errors import ConfigError
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.sharpness import SAM
from dgbench.plan.building import build, without
from dgbench.plan.inputs import InitialWeights
from dgbench.plan.settings import TrainerSettings

#: what to choose for each kind
FIXES = {
    "vectors": "choose backbone=feature_mlp, linear or mlp",
    "pictures": "choose a backbone for pictures, such as mlp or mnist_cnn, or dataset=features",
}


def check_backbone(config: Mapping[str, Any], info: DatasetInfo) -> None:
    """Refuse a featurizer that is not made for what the dataset holds.

    Args:
        config: plain resolved values by top-level key.
        info: of the dataset.

    Raises:
        ConfigError: it takes pictures and the dataset holds vectors, or the other way around.
    """
    takes = getattr(get_class(config["backbone"]["_target_"]), "takes", None)  # a user's own may not say
    if takes is not None and info.kind not in takes:
        raise ConfigError(
            f"backbone={config['backbone']['name']} takes {' or '.join(takes)}, and dataset={info.name} holds "
            f"{info.kind}; {FIXES[info.kind]}"
        )


def check_algorithm(algorithm: type[Algorithm], config: Mapping[str, Any], info: DatasetInfo) -> None:
    """Refuse vectors for an algorithm that needs pictures.

    Raises:
        ConfigError: with the reason.
    """
    if info.kind == "vectors" and algorithm.why_not_vectors:
        raise ConfigError(
            f"algorithm={config['algorithm']['name']} cannot train on vectors of features: "
            f"{algorithm.why_not_vectors}; choose another algorithm"
        )


RGB = 3  # channels
IN_PARTS = ("accumulate", "devices")  #: keys of ``conf/trainer`` that cut a minibatch


def sharpness_of(config: Mapping[str, Any]) -> SAM | None:
    """How updates look at raised weights, if they do.

    Args:
        config: plain resolved values by top-level key.

    Raises:
        ConfigError: a value that cannot work.
    """
    if "_target_" not in config["sharpness"]:
        return None
    method: SAM = build(without(config, "sharpness", "name"), "sharpness")
    return method


def check_combination(algorithm: type[Algorithm], config: Mapping[str, Any], settings: TrainerSettings) -> None:
    """Refuse what would turn a method into another one.

    Args:
        algorithm: that is trained.
        config: plain resolved values by top-level key.
        settings: of the trainer.

    Raises:
        ConfigError: sharpness-aware updates around an algorithm without one loss, or parts of a minibatch where a
            method needs the whole.
    """
    name, sharpness = config["algorithm"]["name"], sharpness_of(config)
    label = f"sharpness={config['sharpness']['name']}"
    if sharpness and algorithm.why_not_sharp:
        raise ConfigError(
            f"{label} cannot go around algorithm={name}: {algorithm.why_not_sharp}; "
            "set sharpness=none or choose another algorithm"
        )
    for key in IN_PARTS:
        n = getattr(settings, key)
        if n > 1 and sharpness:
            raise ConfigError(
                f"{label} cannot go with trainer.{key}={n}: each part of a minibatch would climb on its own, which "
                f"is another method; set trainer.{key}=1 or sharpness=none"
            )
        if n > 1 and algorithm.why_not_in_parts:
            raise ConfigError(
                f"algorithm={name} cannot go with trainer.{key}={n}: {algorithm.why_not_in_parts}, which is another "
                f"method; set trainer.{key}=1 or choose another algorithm"
            )


class InitialHead(Protocol):
    """What ``conf/head`` names."""

    def check(self) -> None:
        """Raise where what it needs is not installed."""

    def set(self, classifier: nn.Module, weights: Any, classes: Sequence[str], unit_length: bool) -> None:
        """Put values into the classifier.

        Args:
            classifier: the algorithm's.
            weights: initial weights of the featurizer.
            classes: names of the K classes.
            unit_length: whether the features have length one.
        """


def check_weights(weights: InitialWeights, config: Mapping[str, Any]) -> None:
    """Fetch the weights and see that they fit the backbone, before anything that takes longer.

    Raises:
        ConfigError, WeightsError: they cannot be had, or do not fit.
    """
    side = weights.images.input_size
    weights.check(
        lambda: build(without(config, "backbone", "name", "hparams"), "backbone", image=(RGB, side, side))  # type: ignore[no-any-return]
    )

"""The initial weights that a configuration names, and the images they were trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

from dgbench.training.building import build, without

if TYPE_CHECKING:
    from torch import nn

    from dgbench.networks.weights import ImageRecord

RGB = 3


class InitialWeights(Protocol):
    """What ``conf/init`` names."""

    @property
    def identity(self) -> str:
        """For the rows; it changes with every byte of the weights."""

    images: ImageRecord
    text_model: str | None  #: OpenCLIP's name of the model whose text encoder the file holds, if it holds one

    def to_fetch(self) -> str | None:
        """The command that fetches their file; None where it is here. Asks no network."""

    def check(self, make: Callable[[], nn.Module]) -> None:
        """Raise where the weights do not fit the network that ``make`` makes."""

    def load(self, featurizer: nn.Module) -> None:
        """Put the weights in."""


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


def named_weights(config: Mapping[str, Any]) -> InitialWeights:
    """The weights that a configuration names; nothing is read yet.

    Raises:
        ConfigError: there are none for this network.
    """
    arch = config["backbone"].get("arch")
    weights: InitialWeights = build(without(config, "init", "norm"), "init", arch=arch)
    return weights


def check_weights(weights: InitialWeights, config: Mapping[str, Any]) -> None:
    """Fetch the weights and see that they fit the backbone, before anything that takes longer.

    Raises:
        ConfigError, WeightsError: they cannot be had, or do not fit.
    """
    side = weights.images.input_size
    weights.check(
        lambda: build(without(config, "backbone", "name", "hparams"), "backbone", image=(RGB, side, side))  # type: ignore[no-any-return]
    )


def filled_dataset(weights: InitialWeights, dataset: Mapping[str, Any]) -> dict[str, Any]:
    """The dataset's keys with mean, deviation and size of the images filled in where they are null."""
    filled: dict[str, Any] = deepcopy(dict(dataset))
    if "image_size" in filled and filled["image_size"] is None:
        filled["image_size"] = weights.images.input_size
    normalize = filled.get("normalize")
    if isinstance(normalize, dict):
        for key, value in (("mean", weights.images.mean), ("std", weights.images.std)):
            if normalize.get(key, value) is None:
                normalize[key] = list(value)
    return filled

"""The initial weights that a configuration names, and the images they were trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from omegaconf import DictConfig, OmegaConf
from torch import nn

from dgbench.backbones.weights import ImageRecord
from dgbench.cli.build import build, without

RGB = 3


class InitialWeights(Protocol):
    """What ``conf/init`` names."""

    @property
    def identity(self) -> str:
        """For the rows; it changes with every byte of the weights."""

    images: ImageRecord

    def check(self, make: Callable[[], nn.Module]) -> None:
        """Raise where the weights do not fit the network that ``make`` makes."""

    def load(self, featurizer: nn.Module) -> None:
        """Put the weights in."""


def initial_weights(config: DictConfig) -> InitialWeights:
    """The weights, fetched and seen to fit the backbone, before anything that takes longer.

    Raises:
        ConfigError, WeightsError: they cannot be had, or do not fit.
    """
    weights: InitialWeights = build(without(config, "init", "norm"), "init", arch=config.backbone.get("arch"))
    side = weights.images.input_size
    weights.check(
        lambda: build(without(config, "backbone", "name", "hparams"), "backbone", image=(RGB, side, side))  # type: ignore[no-any-return]
    )
    return weights


def for_images_of(weights: InitialWeights, config: DictConfig) -> DictConfig:
    """The configuration with mean, deviation and size of the images filled in where they are null."""
    wanted = {
        "normalize.mean": list(weights.images.mean),
        "normalize.std": list(weights.images.std),
        "image_size": weights.images.input_size,
    }
    filled = config.copy()
    for key, value in wanted.items():
        if OmegaConf.select(config.dataset, key, default="absent") is None:
            OmegaConf.update(filled, f"dataset.{key}", value)
    return filled

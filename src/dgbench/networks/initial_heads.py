"""What ``conf/head`` names: the values that a classifier starts from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from dgbench.errors import ConfigError


class TextWeights(Protocol):
    """Initial weights as a head sees them."""

    name: str
    text_model: str | None  #: OpenCLIP's name of the model whose text encoder the file holds

    @property
    def file(self) -> Path:
        """The local file."""


class RandomHead:
    """The classifier's own random weights."""

    def __init__(self, *, name: str = "random", unit_length: bool = False) -> None:
        self.name = name

    def check(self) -> None:
        """Nothing has to be there."""

    def set(self, classifier: nn.Module, weights: TextWeights, classes: Sequence[str], unit_length: bool) -> None:
        """Leave the weights as they were drawn."""


class ZeroHead:
    """Weights and bias are zero."""

    def __init__(self, *, name: str = "zero", unit_length: bool = False) -> None:
        self.name = name

    def check(self) -> None:
        """Nothing has to be there."""

    def set(self, classifier: nn.Module, weights: TextWeights, classes: Sequence[str], unit_length: bool) -> None:
        """Set weights and bias to zero.

        Raises:
            ConfigError: the classifier is not one linear layer.
        """
        layer = linear(classifier, self.name)
        with torch.no_grad():
            layer.weight.zero_()
            layer.bias.zero_()


def linear(classifier: nn.Module, name: str) -> nn.Linear:
    """The classifier, if it is one linear layer with a bias.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(classifier, nn.Linear):
        raise ConfigError(
            f"head={name} sets one linear layer, and this algorithm's classifier is a {type(classifier).__name__}; use "
            "head=random, or set hparams.nonlinear_classifier=false where that made it"
        )
    return classifier

"""Minimize the entropy of predictions on test images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from dgbench.errors import ConfigError
from dgbench.trained.adaptation.contract import Adaptation, Adapter
from dgbench.trained.adaptation.entropy import entropy
from dgbench.trained.adaptation.norms import (
    batch_norms,
    learn_norms,
    norm_layers,
    use_batch_statistics,
)
from dgbench.trained.matched import Matched
from dgbench.validation import Count1, NotNegative, Number, Refusal

LearningRate = Annotated[
    NotNegative, Refusal("is not a number >= 0", "give one, 0.001 is published")
]
Momentum = Annotated[
    Annotated[Number, Field(ge=0, lt=1)], Refusal("is not in [0, 1)", "give one, 0.9 is published")
]


class Tent(Adaptation):
    """Lower the mean entropy of predictions by scales and shifts of normalization (Wang et al.,
    2021).

    BatchNorm normalizes with the statistics of the batch. On each batch

        L = mean over images of -sum_k p_k log p_k,

    is lowered by ``steps`` steps; what is predicted is what the last of them started from, so one
    step changes the predictions of later batches alone. The authors adapt BatchNorm; here every
    layer of normalization learns, as their successors do it. Dropout stays off.

    Source: https://openreview.net/forum?id=uXl3bZLkr3c; github.com/DequanWang/tent.

    Args:
        lr: learning rate; 0 leaves the statistics of the batch alone (``adaptation=bn``).
        optimizer: ``adam`` (CIFAR-10-C) or ``sgd`` (ImageNet-C).
        momentum: of SGD, or the first beta of Adam.
        steps: on each batch.
    """

    lr: LearningRate
    optimizer: Literal["adam", "sgd"]
    momentum: Momentum
    steps: Count1

    def check(self, network: Matched, image: Sequence[int]) -> None:
        refuse_without_norms("tent", norm_layers(network))

    def least_images(self, network: Matched) -> int:
        return 2 if batch_norms(network) else 1

    def start(self, network: Matched) -> Adapter:
        parameters = learn_norms(network)
        use_batch_statistics(network)
        optimizer: torch.optim.Optimizer
        if self.optimizer == "adam":
            optimizer = torch.optim.Adam(parameters, self.lr, betas=(self.momentum, 0.999))
        else:
            optimizer = torch.optim.SGD(parameters, self.lr, momentum=self.momentum)

        @torch.enable_grad()
        def adapt(x: Tensor) -> Tensor:
            for _ in range(self.steps):
                logits: Tensor = network(x)
                loss: Any = entropy(logits).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return logits.detach()

        return adapt


def refuse_without_norms(name: str, layers: Sequence[nn.Module]) -> None:
    """Refuse a network without layers of normalization that could learn.

    Raises:
        ConfigError: there are none.
    """
    if not layers:
        raise ConfigError(
            f"adaptation={name} trains scales and shifts of normalization layers, and this network "
            "has none; choose adaptation=t3a, or none"
        )

"""Minimize the entropy of reliable predictions, where it stays low nearby."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from dgbench.trained.adaptation.contract import Adaptation, Adapter
from dgbench.trained.adaptation.entropy import entropy
from dgbench.trained.adaptation.norms import (
    batch_norms,
    learn_norms,
    norm_layers,
    use_batch_statistics,
)
from dgbench.trained.adaptation.tent import LearningRate, Momentum, refuse_without_norms
from dgbench.trained.matched import Matched
from dgbench.validation import Count1, NonBlank, NotNegative, Positive, Refusal

TINY = 1e-12  # keeps a gradient of zero from being divided by zero
AVERAGE_DECAY = 0.9  # share of the moving average that stays after a batch


class SAR(Adaptation):
    """Sharpness-aware and reliable entropy minimization (Niu et al., 2023).

    On each batch only images count whose entropy E is below ``margin`` x ln K. Their mean entropy
    has a gradient g, which leads to raised weights w + rho g / |g|; there the images are predicted
    again, those still below the margin count, and the gradient of their mean entropy takes a step
    of SGD from w. A moving average of that last mean entropy,

        e <- 0.9 e + 0.1 E,

    tells a collapse: below ``recovery`` the weights are set back to those of the stream's
    beginning. As in the authors' code neither the average nor the momentum is, so weights stay
    there until the average has risen again. What is predicted is what the (last) step started from.

    Source: https://openreview.net/forum?id=g2YraF75Tj, equations 2 to 4 and algorithm 1;
    github.com/mr-eggplant/SAR.

    Args:
        lr: learning rate of SGD; 0 leaves the statistics of the batch alone.
        momentum: of SGD.
        rho: how far weights are raised.
        margin: of reliable entropies, a share of ln K.
        recovery: moving average of the entropy, in nats, below which the weights are set back.
        steps: on each batch.
        skip: dotted parts of the names of layers that stand still, the last ones of a ResNet and of
            a ViT.
    """

    lr: LearningRate
    momentum: Momentum
    rho: Annotated[NotNegative, Refusal("is not a number >= 0", "give one, 0.05 is published")]
    margin: Annotated[
        Annotated[Positive, Field(le=1)], Refusal("is not in (0, 1]", "give one, 0.4 is published")
    ]
    recovery: Annotated[NotNegative, Refusal("is not a number >= 0", "give one, 0 never does")]
    steps: Count1
    skip: Annotated[
        list[NonBlank], Refusal("is no list of names", "write e.g. [[layer4]], or [[]]")
    ]

    def check(self, network: Matched, image: Sequence[int]) -> None:
        refuse_without_norms("sar", norm_layers(network, self.skip))

    def understood(self, network: nn.Module) -> str:
        learning = len(norm_layers(network, self.skip))
        return f"{learning} of {len(norm_layers(network))} normalization layers learn"

    def least_images(self, network: Matched) -> int:
        return 2 if batch_norms(network) else 1

    def start(self, network: Matched) -> Adapter:
        parameters = learn_norms(network, self.skip)
        use_batch_statistics(network)
        optimizer = torch.optim.SGD(parameters, self.lr, momentum=self.momentum)
        source = _values(parameters)
        average: float | None = None

        @torch.enable_grad()
        def adapt(x: Tensor) -> Tensor:
            nonlocal average
            for _ in range(self.steps):
                logits, reached = self._step(network, parameters, optimizer, x)
                average = moved_average(average, reached)
                if average is not None and average < self.recovery:
                    _put(parameters, source)
            return logits.detach()

        return adapt

    def _step(
        self,
        network: Matched,
        parameters: Sequence[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        x: Tensor,
    ) -> tuple[Tensor, float]:
        """Take one step on a batch.

        Returns:
            the (n, K) logits that it started from; the mean entropy that it lowered, in nats, of
            the images that were reliable at the raised weights too, NaN without any.
        """
        logits = network(x)
        margin = self.margin * math.log(logits.shape[1])
        entropies = entropy(logits)
        reliable = entropies < margin
        gradients = torch.autograd.grad(entropies[reliable].mean(), parameters)
        before = _values(parameters)
        _put(parameters, raised(before, gradients, self.rho))
        raised_entropies = entropy(network(x))[reliable]
        still_reliable = raised_entropies < margin
        loss: Any = raised_entropies[still_reliable].mean()
        optimizer.zero_grad()
        loss.backward()
        _put(parameters, before)
        optimizer.step()
        return logits, float(loss.detach())


def raised(weights: Sequence[Tensor], gradients: Sequence[Tensor], rho: float) -> list[Tensor]:
    """Move weights by ``rho`` in the direction of their common gradient (Foret et al., 2021)."""
    norms = [gradient.norm() for gradient in gradients]
    scale = rho / (torch.stack(norms).norm() + TINY)
    moved = []
    for weight, gradient in zip(weights, gradients, strict=True):
        moved.append(weight + scale * gradient)
    return moved


def moved_average(average: float | None, value: float) -> float | None:
    """Move an average by a value; NaN leaves it, and the first value begins it."""
    if math.isnan(value):
        return average
    if average is None:
        return value
    return AVERAGE_DECAY * average + (1 - AVERAGE_DECAY) * value


def _values(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


@torch.no_grad()
def _put(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)

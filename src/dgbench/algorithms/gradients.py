"""Gradients inside an objective, valid on ordinary modules and under ``torch.func.vmap`` alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.risks import environment_risks
from dgbench.types import BoundNetworks, EnvBatch, Networks, Tensors

MODEL = ("featurizer", "classifier")


def detached(tensors: Tensors) -> dict[str, Tensor]:
    """The same tensors as constants."""
    return {key: value.detach() for key, value in tensors.items()}


def scale_gradient(z: Tensor, factor: Tensor | float) -> Tensor:
    """``z`` itself, exactly; the gradient that comes back through it is multiplied by ``factor``."""
    return z.detach() + factor * (z - z.detach())


def risk_and_gradient(
    nets: Networks, params: Tensors, risk: Callable[[BoundNetworks], Tensor], keep_statistics: bool = True
) -> tuple[Tensor, dict[str, Tensor]]:
    """A scalar function of the networks and its gradient, both differentiable if ``params`` are.

    Args:
        nets: the networks; not changed but for their running statistics.
        params: where to differentiate, keyed ``network.parameter``.
        risk: the function.
        keep_statistics: let the forward pass update running statistics, as it would outside; otherwise the update
            is thrown away, as with a copy of the networks.
    """

    def value(params: Tensors) -> tuple[Tensor, Tensors]:
        # a buffer that is written to must be born inside the transformation
        statistics = {key: buffer.clone() for key, buffer in nets.statistics().items()}
        return risk(nets.bind({**statistics, **params})), statistics

    gradient, (result, statistics) = torch.func.grad_and_value(value, has_aux=True)(dict(params))
    if keep_statistics:
        for key, buffer in nets.statistics().items():
            buffer.copy_(statistics[key].detach())
    return result, gradient


def environment_gradients(
    nets: Networks, params: Tensors, batch: EnvBatch, together: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """The (E,) risks of all environments and their gradients, (E, ...) by parameter name.

    Args:
        together: one forward pass over all rows, as OoD-Bench does, instead of one per environment (DomainBed);
            the results differ only under an unfrozen BatchNorm.
    """
    parts = list(zip(batch.split(batch.x), batch.split(batch.y), strict=True))

    def separate(e: int) -> Callable[[BoundNetworks], Tensor]:
        return lambda bound: F.cross_entropy(bound.logits(parts[e][0]), parts[e][1])

    def joint(e: int) -> Callable[[BoundNetworks], Tensor]:
        return lambda bound: environment_risks(bound.logits(batch.x), batch)[e]

    make = joint if together else separate
    # of the repeated joint passes only one may move the running statistics
    results = [risk_and_gradient(nets, params, make(e), not together or e == 0) for e in range(len(batch.sizes))]
    return _stack(results)


def _stack(results: Sequence[tuple[Tensor, Tensors]]) -> tuple[Tensor, dict[str, Tensor]]:
    risks = torch.stack([risk for risk, _ in results])
    return risks, {key: torch.stack([gradient[key] for _, gradient in results]) for key in results[0][1]}

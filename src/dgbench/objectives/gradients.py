"""Gradients inside an objective, valid on ordinary modules and under ``torch.func.vmap`` alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.modules import AnyNetworks, BoundNetworks
from dgbench.objectives.risks import environment_risks
from dgbench.tensors import EnvBatch, Tensors

MODEL = ("featurizer", "classifier")


def detached(tensors: Tensors) -> dict[str, Tensor]:
    """The same tensors as constants."""
    return {key: value.detach() for key, value in tensors.items()}


def inner_product(a: Tensors, b: Tensors) -> Tensor:
    """Of all tensors as one vector; the names are those of the first."""
    return torch.stack([(value * b[key]).sum() for key, value in a.items()]).sum()


def scale_gradient(z: Tensor, factor: Tensor | float) -> Tensor:
    """``z`` itself, exactly; the gradient that comes back through it is multiplied by ``factor``."""
    return z.detach() + factor * (z - z.detach())


def risk_and_gradient(
    nets: AnyNetworks,
    params: Tensors,
    risk: Callable[[BoundNetworks], Tensor],
    keep_statistics: bool = True,
    differentiable: bool = False,
    weights: Callable[[Tensor], Tensor] = torch.ones_like,
) -> tuple[Tensor, dict[str, Tensor]]:
    """A function of the networks and its gradient.

    Args:
        nets: the networks; not changed but for their running statistics.
        params: where to differentiate, keyed ``network.parameter``.
        risk: the function; its value is a scalar, or a vector of which ``weights`` makes one.
        keep_statistics: let the forward pass update running statistics, as it would outside; otherwise the update
            is thrown away, as with a copy of the networks.
        differentiable: the gradient may be differentiated again, which takes a slower backward pass.
        weights: from a vector value, the weights of its entries in the sum whose gradient is taken; constants.
    """
    result, pull, statistics = torch.func.vjp(_pure(nets, risk), dict(params), has_aux=True)  # type: ignore[misc]
    if keep_statistics:
        _keep(nets, statistics)
    (gradient,) = pull(weights(result), create_graph=differentiable)
    return result, gradient


def environment_gradients(
    nets: AnyNetworks,
    params: Tensors,
    batch: EnvBatch,
    together: bool = False,
    differentiable: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The (E,) risks of all environments and their gradients, (E, ...) by parameter name.

    Args:
        together: one forward pass over all rows, as OoD-Bench does, instead of one per environment (DomainBed);
            the results differ only under an unfrozen BatchNorm.
        differentiable: the gradients may be differentiated again.
    """
    if together:
        function = _pure(nets, lambda bound: environment_risks(bound.logits(batch.x), batch))
        risks, pull, statistics = torch.func.vjp(function, dict(params), has_aux=True)  # type: ignore[misc]
        _keep(nets, statistics)
        rows = torch.eye(len(batch.sizes), dtype=risks.dtype, device=risks.device)
        return risks, _stack([pull(row, create_graph=differentiable)[0] for row in rows])
    results = [
        risk_and_gradient(nets, params, partial(_risk, x=x, y=y), differentiable=differentiable)
        for x, y in zip(batch.split(batch.x), batch.split(batch.y), strict=True)
    ]
    return torch.stack([risk for risk, _ in results]), _stack([gradient for _, gradient in results])


def _risk(bound: BoundNetworks, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(bound.logits(x), y)


def _pure(nets: AnyNetworks, risk: Callable[[BoundNetworks], Tensor]) -> Callable[[Tensors], tuple[Tensor, Tensors]]:
    """The risk as a function of parameters that also returns the running statistics it leaves."""

    def function(params: Tensors) -> tuple[Tensor, Tensors]:
        # a buffer that is written to must be born inside the transformation
        statistics = {key: buffer.clone() for key, buffer in nets.statistics().items()}
        return risk(nets.bind({**statistics, **params})), statistics

    return function


def _keep(nets: AnyNetworks, statistics: Tensors) -> None:
    for key, buffer in nets.statistics().items():
        buffer.copy_(statistics[key].detach())


def _stack(gradients: Sequence[Tensors]) -> dict[str, Tensor]:
    return {key: torch.stack([gradient[key] for gradient in gradients]) for key in gradients[0]}

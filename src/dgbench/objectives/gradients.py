"""Gradients inside an objective, valid on ordinary modules and under ``torch.func.vmap`` alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.batches import EnvBatch, Tensors
from dgbench.containers import AnyNetworks, BoundNetworks
from dgbench.objectives.step import Outcome, Step, environment_risks

MODEL = ("featurizer", "classifier")


def detached(tensors: Tensors) -> dict[str, Tensor]:
    """Detach all tensors, so that they are constants."""
    return {key: value.detach() for key, value in tensors.items()}


def inner_product(a: Tensors, b: Tensors) -> Tensor:
    """Compute the inner product of ``a`` and ``b``, each with all its tensors as one vector.

    The names are those of ``a``.
    """
    return torch.stack([(value * b[key]).sum() for key, value in a.items()]).sum()


def scale_gradient(z: Tensor, factor: Tensor | float) -> Tensor:
    """Return ``z`` itself, exactly, with the gradient that comes back multiplied by ``factor``."""
    return z.detach() + factor * (z - z.detach())


def risk_and_gradient(
    nets: AnyNetworks,
    params: Tensors,
    risk: Callable[[BoundNetworks], Tensor],
    keep_statistics: bool = True,
    differentiable: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute a scalar function of the networks and its gradient.

    Args:
        nets: the networks; not changed but for their running statistics.
        params: where to differentiate, keyed ``network.parameter``.
        risk: the function.
        keep_statistics: let the forward pass update running statistics, as it would outside;
            otherwise the update is thrown away, as with a copy of the networks.
        differentiable: the gradient may be differentiated again, which takes a slower backward
            pass.
    """
    result, backward, _ = _differentiable(
        nets, params, lambda bound: (risk(bound), {}), keep_statistics
    )
    (gradient,) = backward(torch.ones_like(result), create_graph=differentiable)
    return result, gradient


def outcome_and_gradient(
    nets: AnyNetworks,
    params: Tensors,
    objective: Callable[[BoundNetworks], Outcome],
    keep_statistics: bool = True,
) -> tuple[Outcome, dict[str, Tensor]]:
    """Evaluate an objective on the networks, and the gradient of its loss.

    Args:
        nets, params, keep_statistics: as of :func:`risk_and_gradient`.
        objective: with a loss that is to be differentiated; its own ``grads`` are ignored.

    Returns:
        The outcome and the gradient, both detached.
    """

    def parts(bound: BoundNetworks) -> tuple[Tensor, dict[str, dict[str, Tensor]]]:
        out = objective(bound)
        return out.loss, {"logs": dict(out.logs), "state": dict(out.state)}

    loss, backward, extras = _differentiable(nets, params, parts, keep_statistics)
    (gradient,) = backward(torch.ones_like(loss), create_graph=False)
    outcome = Outcome(loss.detach(), detached(extras["logs"]), detached(extras["state"]))
    return outcome, detached(gradient)


def environment_gradients(
    nets: AnyNetworks,
    params: Tensors,
    batch: EnvBatch,
    together: bool = False,
    differentiable: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the (E,) risks of all environments and their gradients, (E, ...) by parameter name.

    Args:
        together: one forward pass over all rows, as OoD-Bench does, instead of one per environment
            (DomainBed); the results differ only under an unfrozen BatchNorm.
        differentiable: the gradients may be differentiated again.
    """
    if together:
        risks, backward, _ = _differentiable(
            nets, params, lambda bound: (environment_risks(bound.logits(batch.x), batch), {})
        )
        rows = torch.eye(len(batch.sizes), dtype=risks.dtype, device=risks.device)
        return risks, _stack([backward(row, create_graph=differentiable)[0] for row in rows])
    results = [
        risk_and_gradient(nets, params, partial(_risk, x=x, y=y), differentiable=differentiable)
        for x, y in zip(batch.split(batch.x), batch.split(batch.y), strict=True)
    ]
    return torch.stack([risk for risk, _ in results]), _stack([gradient for _, gradient in results])


def masked_outcome(
    s: Step, masked: Callable[[Tensor], tuple[Tensor, Tensor]], together: bool = False
) -> Outcome:
    """Compute the mean risk, and gradients that are masked where environments disagree.

    Args:
        s: the step.
        masked: (E, ...) gradients of a parameter -> (...), and the mean of their mask.
        together: see :func:`environment_gradients`.
    """
    params = detached(s.networks.params(*MODEL))
    risks, gradients = environment_gradients(s.networks, params, s.batch, together)
    followed = {}
    shares = {}
    for key, gradient in gradients.items():
        followed[key], shares[key] = masked(gradient)
    n = sum(gradient.numel() for gradient in followed.values())
    parts = [shares[key] * (gradient.numel() / n) for key, gradient in followed.items()]
    logs = {"agreeing": torch.stack(parts).sum()}
    return Outcome(risks.mean(), logs, grads=followed)


def _risk(bound: BoundNetworks, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(bound.logits(x), y)


def _differentiable(
    nets: AnyNetworks,
    params: Tensors,
    value: Callable[[BoundNetworks], tuple[Tensor, Any]],
    keep_statistics: bool = True,
) -> tuple[Tensor, Callable[..., Any], Any]:
    """Evaluate ``value`` at ``params``.

    Returns:
        Its result, the function for its gradient, and its auxiliary output.
    """

    def function(params: Tensors) -> tuple[Tensor, tuple[Tensors, Any]]:
        # a buffer that is written to must be born inside the transformation
        statistics = copied(nets.statistics())
        result, extras = value(nets.bind({**statistics, **params}))
        return result, (statistics, extras)

    result, backward, (statistics, extras) = torch.func.vjp(function, dict(params), has_aux=True)  # type: ignore[misc]
    if keep_statistics:
        set_statistics(nets, statistics)
    return result, backward, extras


def _stack(gradients: Sequence[Tensors]) -> dict[str, Tensor]:
    """Stack gradients of the same parameters along a new first axis."""
    stacked = {}
    for key in gradients[0]:
        stacked[key] = torch.stack([gradient[key] for gradient in gradients])
    return stacked


def copied(tensors: Tensors) -> dict[str, Tensor]:
    """Copy all tensors, so that the copies may be written to."""
    return {key: value.clone() for key, value in tensors.items()}


def set_statistics(nets: AnyNetworks, moved: Tensors) -> None:
    """Set the networks' running statistics to ``moved``.

    These are copies that a forward pass has updated.
    """
    for key, value in nets.statistics().items():
        value.copy_(moved[key].detach())


def saved(nets: AnyNetworks, name: str) -> dict[str, Tensor]:
    """Copy a network's trainable parameters and running statistics to entries of a state.

    The entries are called ``kept/network/tensor``.
    """
    return {_entry(key): value.detach().clone() for key, value in _tensors(nets, name).items()}


def with_saved(nets: AnyNetworks, name: str, state: Tensors) -> AnyNetworks:
    """Return the networks with the tensors of ``name`` that :func:`saved` put into the state."""
    return nets.bind({key: state[_entry(key)] for key in _tensors(nets, name)})


def _tensors(nets: AnyNetworks, name: str) -> dict[str, Tensor]:
    tensors = dict(nets.params(name))
    for key, value in nets.statistics().items():
        if key.startswith(f"{name}.") and value.is_floating_point():
            tensors[key] = value
    return tensors


def _entry(key: str) -> str:
    return "kept/" + key.replace(".", "/")  # names of buffers have no dots

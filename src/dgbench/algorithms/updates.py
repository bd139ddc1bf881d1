"""From gradients to updates: what surrounds an objective and is the same for every algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgbench.types import Player


@dataclass(frozen=True)
class UpdateRule:
    """How gradients become updates.

    Args:
        steps: optimizer steps in all, T.
        schedule: learning rate at step t = 0, 1, ...: ``constant``, or ``cosine``, (1 + cos(pi t / T)) / 2 of it.
        gradient_clip: largest global norm of the gradient of the players that step, per member; None for no limit.
        accumulate: shares of a minibatch that are evaluated one after the other, see ``shares.py``.
    """

    steps: int = 1
    schedule: str = "constant"
    gradient_clip: float | None = None
    accumulate: int = 1

    def factor(self, step: int) -> float:
        """Learning rate at a step, in parts of the full one: a function of the step alone, so resuming is exact."""
        return 1.0 if self.schedule == "constant" else (1 + math.cos(math.pi * step / self.steps)) / 2


def adam_settings(values: Mapping[str, Any], player: Player) -> dict[str, Any]:
    """The arguments of a player's Adam, from a member's hyperparameters."""
    beta1 = values[player.beta1] if isinstance(player.beta1, str) else player.beta1
    return {
        "lr": values[player.lr],
        "weight_decay": values[player.weight_decay],
        "betas": (beta1, player.beta2),
    }


def learning_rate(member: Any, player: Player, step: int) -> float:
    """The learning rate of one step: that of the player, or from ``reset_at`` on that of the member's ``reset_lr``.

    A reset changes the full rate and does not start the schedule again. (In the code of NICO++ a schedule goes per
    epoch; a reset by Fishr starts it again, and one by IRM or VREx ends it.) A reset at no whole number never comes.
    """
    full: float = member.values[player.lr]
    if member.reset_at is not None and member.reset_lr is not None:
        at = member.values[member.reset_at]
        if float(at).is_integer() and step >= at:
            full = member.values[member.reset_lr]
    factor: float = member.rule.factor(step)
    return full * factor


def clipped(gradients: Mapping[str, Tensor | None], limit: float | None) -> Mapping[str, Tensor | None]:
    """Gradients of a stack, (R, ...) by name, each member's scaled so that its global norm is at most ``limit``.

    As :func:`torch.nn.utils.clip_grad_norm_` does for one member.
    """
    given = [gradient for gradient in gradients.values() if gradient is not None]
    if limit is None or not given:
        return gradients
    squares = torch.stack([gradient.reshape(len(gradient), -1).pow(2).sum(1) for gradient in given]).sum(0)
    factor = (limit / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    return {
        name: None if gradient is None else gradient * factor.view(-1, *[1] * (gradient.dim() - 1))
        for name, gradient in gradients.items()
    }


def take_steps(optimizers: Sequence[Any], limit: float | None, scaler: Any) -> None:
    """Clip the global norm of the gradients of all these optimizers, and step them.

    Args:
        optimizers: as Lightning wraps them.
        limit: largest norm; None for no limit.
        scaler: the gradient scaler of half precision, or None. All optimizers step before it changes its scale;
            Lightning's own step would change it between two optimizers whose gradients have the same scale.
    """
    parameters = {
        optimizer: [p for group in optimizer.param_groups for p in group["params"]] for optimizer in optimizers
    }
    if scaler is not None:
        optimizers = [each for each in optimizers if any(p.grad is not None for p in parameters[each])]
        for optimizer in optimizers:
            scaler.unscale_(optimizer.optimizer)
    if limit is not None:
        torch.nn.utils.clip_grad_norm_([p for own in parameters.values() for p in own], limit)
    for optimizer in optimizers:
        optimizer.step() if scaler is None else scaler.step(optimizer.optimizer)
    if scaler is not None and optimizers:
        scaler.update()

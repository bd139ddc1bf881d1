"""From gradients to updates: what surrounds an objective and is the same for every algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.objectives.contract import Algorithm, ParamGroup
from dgbench.objectives.sharpness import SAM


@dataclass(frozen=True)
class UpdateRule:
    """How gradients become updates."""

    steps: int = 1  #: optimizer steps in all, T
    #: learning rate at step t = 0, 1, ...: ``constant``, or ``cosine``, (1 + cos(pi t / T)) / 2 of
    #: it, with t and T counted from the end of the warm-up
    schedule: str = "constant"
    #: first steps W, at which the learning rate rises linearly, (t + 1) / (W + 1) of it
    warmup_steps: int = 0
    #: factor between the learning rates of two parts of a featurizer that follow one another, in
    #: (0, 1]; its last part learns this much slower than what stands behind it (Bao et al., 2022).
    #: None: all learn alike.
    layer_decay: float | None = None
    #: largest global norm of the gradient of the groups that step, per run; None for no limit
    gradient_clip: float | None = None
    #: micro-batches that a minibatch is evaluated in, one after the other; see
    #: ``modules/single.py``
    accumulate: int = 1
    #: first steps, in which only what stands behind the featurizer learns; then every optimizer is
    #: re-created (LP-FT, Kumar et al., 2022)
    head_steps: int = 0
    head_lr: float | None = None  #: learning rate of those steps; None is that of the group
    #: how updates of the featurizer look at raised weights too; None: they do not
    sharpness: SAM | None = None

    def factor(self, step: int) -> float:
        """Compute the fraction of the full learning rate at a step, from the step alone, so
        resuming is exact.
        """
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        if self.schedule == "constant":
            return 1.0
        decay_steps = max(self.steps - self.warmup_steps, 1)  # none in a run of 0 steps
        return (1 + math.cos(math.pi * (step - self.warmup_steps) / decay_steps)) / 2


@dataclass(frozen=True)
class Part:
    """Parameters of a group that share optimizer settings."""

    algorithm: Algorithm  #: that has these settings
    parameters: list[Tensor]  #: (R, ...) each in a stack
    scale: float = 1.0  #: factor of the group's learning rate


def layer_scales(featurizers: Sequence[nn.Module], decay: float) -> dict[int, float]:
    """Map the ``id`` of each parameter of featurizers that come apart into layers to the factor of
    its learning rate.

    The k-th last of L parts has decay^k; what belongs to no part is absent, and learns like a
    classifier.
    """
    scales: dict[int, float] = {}
    for featurizer in featurizers:
        layers: list[list[nn.Parameter]] = featurizer.decay_layers()  # type: ignore[operator]
        scales |= {
            id(p): decay ** (len(layers) - i) for i, layer in enumerate(layers) for p in layer
        }
    return scales


MOMENTUM = 0.9
OPTIMIZERS: Mapping[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


def optimizer_settings(values: Mapping[str, Any], group: ParamGroup) -> dict[str, Any]:
    """Build the arguments of a parameter group's optimizer from a run's hyperparameters."""
    common = {"lr": values[group.lr], "weight_decay": values[group.weight_decay]}
    if group.optimizer == "sgd":
        return {**common, "momentum": MOMENTUM, "nesterov": group.nesterov}
    beta1 = values[group.beta1] if isinstance(group.beta1, str) else group.beta1
    return {**common, "betas": (beta1, group.beta2)}


def learning_rate(
    algorithm: Algorithm, name: str, group: ParamGroup, rule: UpdateRule, step: int
) -> float:
    """Compute the learning rate of one step: the group's, or from ``reset_adam_at`` on the
    algorithm's ``reset_lr``.

    A reset changes the full rate and does not start the schedule again. (In the code of NICO++ a
    schedule goes per epoch; a reset by Fishr starts it again, and one by IRM or VREx ends it.) A
    reset at no whole number never comes.
    """
    full: float = algorithm.values[group.lr]
    if algorithm.reset_lr is not None:
        reset_steps = [algorithm.values[key] for key in algorithm.resets()]
        if any(float(reset_step).is_integer() and step >= reset_step for reset_step in reset_steps):
            full = algorithm.values[algorithm.reset_lr]
    if step < rule.head_steps and rule.head_lr is not None:
        full = rule.head_lr
    return full * algorithm.lr_factor(name, step) * rule.factor(step)


def resets_optimizers(algorithm: Algorithm, rule: UpdateRule, step: int) -> bool:
    """Return whether the optimizers are re-created before this step."""
    return 0 < step == rule.head_steps or any(
        step == algorithm.values[key] for key in algorithm.resets()
    )


def unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer itself, without Lightning's wrapper if it has one."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner


def clipped(
    gradients: Mapping[str, Tensor | None], limit: float | None
) -> Mapping[str, Tensor | None]:
    """Clip the gradients of a stack, (R, ...) by name, so that each run's global norm is at most
    ``limit``.

    As :func:`torch.nn.utils.clip_grad_norm_` does for one run; None is no limit.
    """
    present = [gradient for gradient in gradients.values() if gradient is not None]
    if limit is None or not present:
        return gradients
    squares = torch.stack(
        [gradient.reshape(len(gradient), -1).pow(2).sum(1) for gradient in present]
    ).sum(0)
    factor = (limit / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    return {
        name: None if gradient is None else gradient * factor.view(-1, *[1] * (gradient.dim() - 1))
        for name, gradient in gradients.items()
    }


def take_steps(optimizers: Sequence[Any], limit: float | None, scaler: Any) -> None:
    """Clip the global norm of the gradients of all these optimizers, and step them.

    Args:
        optimizers: with or without Lightning's wrapper.
        limit: largest norm; None for no limit.
        scaler: the gradient scaler of half precision, or None. All optimizers step before it
            changes its scale; Lightning's own step would change it between two optimizers whose
            gradients have the same scale.
    """
    parameters = {
        optimizer: [p for group in optimizer.param_groups for p in group["params"]]
        for optimizer in optimizers
    }
    if scaler is not None:
        optimizers = [
            optimizer
            for optimizer in optimizers
            if any(p.grad is not None for p in parameters[optimizer])
        ]
        for optimizer in optimizers:
            scaler.unscale_(unwrapped(optimizer))
    if limit is not None:
        torch.nn.utils.clip_grad_norm_([p for group in parameters.values() for p in group], limit)
    for optimizer in optimizers:
        optimizer.step() if scaler is None else scaler.step(unwrapped(optimizer))
    if scaler is not None and optimizers:
        scaler.update()

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
        """Compute the fraction of the full learning rate at a step.

        It depends on the step alone, so resuming is exact.
        """
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        if self.schedule == "constant":
            return 1.0
        decay_steps = max(self.steps - self.warmup_steps, 1)  # none in a run of 0 steps
        return (1 + math.cos(math.pi * (step - self.warmup_steps) / decay_steps)) / 2


@dataclass(frozen=True)
class OptimizerPart:
    """Parameters of a group that share optimizer settings."""

    algorithm: Algorithm  #: that has these settings
    parameters: list[Tensor]  #: (R, ...) each in a stack
    scale: float = 1.0  #: factor of the group's learning rate


def layer_scales(featurizers: Sequence[nn.Module], decay: float) -> dict[int, float]:
    """Map the ``id`` of each parameter of featurizers to the factor of its learning rate.

    The featurizers come apart into layers: the k-th last of L parts has decay^k. What belongs to no
    part is absent, and learns like a classifier.
    """
    scales: dict[int, float] = {}
    for featurizer in featurizers:
        layers: list[list[nn.Parameter]] = featurizer.decay_layers()  # type: ignore[operator]
        for i, layer in enumerate(layers):
            scale = decay ** (len(layers) - i)
            scales.update((id(parameter), scale) for parameter in layer)
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
    """Compute the learning rate of one step.

    It is the group's, or from ``reset_adam_at`` on the algorithm's ``reset_lr``. A reset changes
    the full rate and does not start the schedule again. (In the code of NICO++ a schedule goes per
    epoch; a reset by Fishr starts it again, and one by IRM or VREx ends it.) A reset at no whole
    number never comes.
    """
    full: float = algorithm.values[group.lr]
    if algorithm.reset_lr is not None:
        resets = [algorithm.values[key] for key in algorithm.resets()]
        if any(float(reset).is_integer() and step >= reset for reset in resets):
            full = algorithm.values[algorithm.reset_lr]
    if step < rule.head_steps and rule.head_lr is not None:
        full = rule.head_lr
    return full * algorithm.lr_factor(name, step) * rule.factor(step)


def resets_optimizers(algorithm: Algorithm, rule: UpdateRule, step: int) -> bool:
    """Return whether the optimizers are re-created before this step."""
    if 0 < step == rule.head_steps:
        return True
    return any(step == algorithm.values[key] for key in algorithm.resets())


def unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer itself, without Lightning's wrapper if it has one."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner


def clipped(
    gradients: Mapping[str, Tensor | None], limit: float | None
) -> Mapping[str, Tensor | None]:
    """Clip the gradients of a stack so that each run's global norm is at most ``limit``.

    :func:`torch.nn.utils.clip_grad_norm_` does so for one run.

    Args:
        gradients: (R, ...) by name.
        limit: None is no limit.
    """
    present = [gradient for gradient in gradients.values() if gradient is not None]
    if limit is None or not present:
        return gradients
    squares = [gradient.reshape(len(gradient), -1).pow(2).sum(1) for gradient in present]
    norm = torch.stack(squares).sum(0).sqrt()
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    shorter: dict[str, Tensor | None] = dict(gradients)
    for name, gradient in gradients.items():
        if gradient is not None:
            shorter[name] = gradient * factor.view(-1, *[1] * (gradient.dim() - 1))
    return shorter


def take_steps(optimizers: Sequence[Any], limit: float | None, scaler: Any) -> None:
    """Clip the global norm of the gradients of all these optimizers, and step them.

    Args:
        optimizers: with or without Lightning's wrapper.
        limit: largest norm; None for no limit.
        scaler: the gradient scaler of half precision, or None. All optimizers step before it
            changes its scale; Lightning's own step would change it between two optimizers whose
            gradients have the same scale.
    """
    if scaler is not None:
        optimizers = [one for one in optimizers if _has_gradients(one)]
        for optimizer in optimizers:
            scaler.unscale_(unwrapped(optimizer))
    if limit is not None:
        parameters: list[Tensor] = []
        for optimizer in optimizers:
            parameters += parameters_of(optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, limit)
    for optimizer in optimizers:
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(unwrapped(optimizer))
    if scaler is not None and optimizers:
        scaler.update()


def parameters_of(optimizer: Any) -> list[Tensor]:
    """List the parameters of an optimizer."""
    parameters: list[Tensor] = []
    for group in optimizer.param_groups:
        parameters += group["params"]
    return parameters


def _has_gradients(optimizer: Any) -> bool:
    return any(parameter.grad is not None for parameter in parameters_of(optimizer))

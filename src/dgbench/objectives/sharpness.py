"""Sharpness-aware training around an objective.

Its gradient is taken here and at raised weights, and the update is made from both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from dgbench.batches import Tensors
from dgbench.containers import AnyNetworks
from dgbench.objectives.gradients import detached, inner_product, outcome_and_gradient
from dgbench.objectives.step import Outcome, Step, UpdateFunction

EPSILON = 1e-12


@dataclass(frozen=True)
class SAM:
    """Climb to the worst weights nearby and follow the gradient there (Foret et al., 2021).

    The climb leads to theta' = theta + rho g / |g|; the update follows g', the gradient at theta'.
    Where g is 0 the original divides by 0; here 1e-12 is added to |g|. The loss is that at theta',
    and the pass there moves running statistics of BatchNorm a second time.
    """

    rho: Tensor | float = 0.05  #: length of the climb from theta to theta'

    #: the loss is that at theta', whose pass moves running statistics too
    reports_above: ClassVar[bool] = True

    def length(self, norm: Tensor) -> Tensor:
        """Compute the factor of g in the step to theta' from the norm of g."""
        return self.rho / (norm + EPSILON)

    def direction(self, g: Tensors, g_above: Tensors) -> Tensors:
        """Combine the gradients at theta and theta' into what the optimizer is given."""
        return g_above


@dataclass(frozen=True)
class GSAM(SAM):
    """SAM that also narrows the gap between the losses at theta and theta'.

    The update follows g' - alpha (g - (g . g' / |g'|^2) g'). The loss is that at theta; the pass at
    theta' leaves running statistics alone. (Zhuang et al., 2022; the code of SAGM.)
    """

    alpha: Tensor | float = 0.1  #: weight of that gap

    reports_above: ClassVar[bool] = False

    def direction(self, g: Tensors, g_above: Tensors) -> Tensors:
        size = inner_product(g_above, g_above).sqrt() + EPSILON
        along = inner_product(g, g_above) / size / size
        return {key: up - self.alpha * (g[key] - along * up) for key, up in g_above.items()}


@dataclass(frozen=True)
class SAGM(SAM):
    """Match the gradients at theta and theta' (Wang et al., 2023; its code).

    The climb leads to theta' = theta + (rho / |g| - alpha) g; the update follows (g + g') / 2. The
    loss is that at theta; the pass at theta' leaves running statistics alone.
    """

    alpha: Tensor | float = 0.001  #: how much of g the climb is shortened by

    reports_above: ClassVar[bool] = False

    def length(self, norm: Tensor) -> Tensor:
        return super().length(norm) - self.alpha

    def direction(self, g: Tensors, g_above: Tensors) -> Tensors:
        return {key: (g[key] + up) / 2 for key, up in g_above.items()}


@dataclass(frozen=True)
class Sharpened:
    """An objective that is evaluated twice, with the same random inputs.

    Two with equal fields are equal. Dropout draws masks of its own for each pass. Weight decay is
    the optimizer's alone and not in g. State and logs are those of the first pass.
    """

    method: SAM  #: how to climb and what to follow
    objective: UpdateFunction  #: whose gradient is followed
    names: Sequence[str]  #: of the parameters that step; g is over these, and only they are raised
    ascent: UpdateFunction | None = None  #: whose gradient leads to theta'; None: ``objective``

    def __call__(self, s: Step) -> Outcome:
        values = detached(s.networks.params())  # of the other parameters, too, no graph is kept
        nets = s.networks.bind(values)
        params = {name: values[name] for name in self.names}
        outcome, g = self._pass(s, nets, params, self.ascent or self.objective)
        norm = inner_product(g, g).sqrt()
        length = self.method.length(norm)
        above = {key: value + length * g[key] for key, value in params.items()}
        outcome_above, g_above = self._pass(
            s, nets, above, self.objective, self.method.reports_above
        )
        logs = {
            **outcome.logs,
            "sharpness": outcome_above.loss - outcome.loss,
            "gradient_norm": norm,
        }
        loss = outcome_above.loss if self.method.reports_above else outcome.loss
        return Outcome(loss, logs, outcome.state, grads=self.method.direction(g, g_above))

    @staticmethod
    def _pass(
        s: Step,
        nets: AnyNetworks,
        params: Tensors,
        objective: UpdateFunction,
        keep_statistics: bool = True,
    ) -> tuple[Outcome, dict[str, Tensor]]:
        return outcome_and_gradient(
            nets,
            params,
            lambda bound: objective(replace(s, networks=bound)),
            keep_statistics=keep_statistics,
        )

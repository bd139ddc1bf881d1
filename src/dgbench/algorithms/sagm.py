"""Sharpness-aware gradient matching."""

from __future__ import annotations

from torch import Tensor

from dgbench.algorithms.sam import SharpnessAware
from dgbench.objectives.step import Step
from dgbench.tensors import Tensors


class SAGM(SharpnessAware):
    """Match the gradients here and at the worst weights nearby (Wang et al., 2023; its code).

    theta' = theta + (rho / |g| - alpha) g with g = grad CE(theta); the update follows (g + g') / 2 with
    g' = grad CE(theta'). The loss is that at theta; the pass at theta' leaves running statistics alone.

    The published code keeps rho = 0.05 whatever was drawn, and the search never draws its default alpha = 0.001.
    """

    @property
    def reports_above(self) -> bool:
        return False

    def length(self, s: Step, norm: Tensor) -> Tensor:
        return super().length(s, norm) - s.hp.alpha

    def direction(self, s: Step, g: Tensors, g_above: Tensors) -> Tensors:
        return {key: (g[key] + up) / 2 for key, up in g_above.items()}

"""Sharpness-aware gradient matching."""

from __future__ import annotations

from dgbench.algorithms.sam import SharpnessAware
from dgbench.objectives import sharpness
from dgbench.objectives.step import Step


class SAGM(SharpnessAware):
    """Match the gradients here and at the worst weights nearby (Wang et al., 2023; its code).

    The gradients and the update are

        g      = grad CE(theta)
        theta' = theta + (rho / |g| - alpha) g
        g'     = grad CE(theta')
        update = (g + g') / 2.

    The loss is that at theta; the pass at theta' leaves running statistics alone.

    The published code keeps rho = 0.05 whatever was drawn, and the search never draws its default
    alpha = 0.001. Around any other algorithm, it is ``sharpness=sagm`` of the command.
    """

    def method(self, s: Step) -> sharpness.SAM:
        return sharpness.SAGM(s.hp.rho, s.hp.alpha)

"""Domain-inspired sharpness-aware minimization."""

from __future__ import annotations

from torch import Tensor

from dgbench.algorithms.sam import SharpnessAware
from dgbench.objectives.step import Step


class DISAM(SharpnessAware):
    """SAM whose climb keeps the environments together (Zhang et al., 2024; its code).

    The climb leads to

        theta' = theta + rho g / |g|, with g = grad [CE - lambda mean_e (R_e - mean R)^2] at theta:

    environments that are already above the mean are climbed less. The update follows grad
    CE(theta'); the loss is that at theta'. With one environment it is SAM.
    """

    def ascent_loss(self, s: Step, risk: Tensor, risks: Tensor) -> Tensor:
        penalty = s.hp["lambda"] * risks.var(correction=0)
        return risk + penalty.detach() - penalty

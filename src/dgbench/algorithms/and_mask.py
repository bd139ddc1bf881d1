"""The AND mask."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.gradients import masked_outcome
from dgbench.objectives.step import Outcome, Step


class ANDMask(Algorithm):
    """Follow the gradient only where the environments agree on its sign
    (Parascandolo et al., 2021; DomainBed).

    For every coordinate the mask is M = 1[|mean_e sign(g_e)| >= tau], and the update follows

        M * mean_e g_e / (1e-10 + r),

    where r is the fraction of ones of M within that parameter tensor. Where nothing agrees the
    gradient is 0, and Adam still steps.

    ``forward=separate``: one forward pass per environment (DomainBed); ``together``: one over all
    (OoD-Bench).
    """

    choices: ClassVar[Choices] = {"forward": ("separate", "together")}
    why_not_sharp = "it masks the gradients of the environments"
    why_not_low_rank = "it masks the gradients of single weights, and low-rank parts have others"

    def objective(self, s: Step) -> Outcome:
        together = self.values["forward"] == "together"
        return masked_outcome(s, lambda g: _masked(g, s.hp.tau), together)


def _masked(gradients: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Average and mask the gradients of one parameter.

    Args:
        gradients: (E, ...), of the environments.
        tau: least agreement of the signs, 0-dimensional.

    Returns:
        The (...) masked gradient, and the share of the coordinates that the mask lets through.
    """
    mask = (gradients.sign().mean(0).abs() >= tau).to(gradients.dtype)
    share = mask.mean()
    return mask * gradients.mean(0) / (1e-10 + share), share

"""The AND mask."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.gradients import MODEL, detached, environment_gradients
from dgbench.objectives.step import Outcome, Step


class ANDMask(Algorithm):
    """Follow the gradient only where the environments agree on its sign (Parascandolo et al., 2021; DomainBed).

    For every coordinate M = 1[|mean_e sign(g_e)| >= tau]; the update follows M * mean_e g_e / (1e-10 + r), where r is
    the fraction of ones of M within that parameter tensor. Where nothing agrees the gradient is 0, and Adam still
    steps. ``forward=separate``: one forward pass per environment (DomainBed); ``together``: one over all (OoD-Bench).
    """

    static = frozenset({"forward"})
    choices: ClassVar[Choices] = {"forward": ("separate", "together")}
    why_not_sharp = "it masks the gradients of the environments"

    def objective(self, s: Step) -> Outcome:
        params = detached(s.networks.params(*MODEL))
        risks, gradients = environment_gradients(s.networks, params, s.batch, self.values["forward"] == "together")
        masked = {key: _masked(g, s.hp.tau) for key, g in gradients.items()}
        n = sum(g.numel() for g, _ in masked.values())
        agreeing = torch.stack([share * (g.numel() / n) for g, share in masked.values()]).sum()
        return Outcome(risks.mean(), {"agreeing": agreeing}, grads={key: g for key, (g, _) in masked.items()})


def _masked(gradients: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """(E, ...) -> (...), and the share of coordinates that are kept."""
    mask = (gradients.sign().mean(0).abs() >= tau).to(gradients.dtype)
    share = mask.mean()
    return mask * gradients.mean(0) / (1e-10 + share), share

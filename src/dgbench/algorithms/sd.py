"""Spectral decoupling."""

from __future__ import annotations

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Outcome, Step


class SD(Algorithm):
    """Penalize large logits, so that one feature does not starve the others
    (Pezeshki et al., 2021; DomainBed).

    The objective is L = CE(l, Y) + sd_reg * mean over rows and classes of l^2.
    """

    def objective(self, s: Step) -> Outcome:
        logits = s.logits()
        penalty = logits.pow(2).mean()
        logs = {"penalty": penalty.detach(), "penalty_weight": s.hp.sd_reg}
        return Outcome(s.risk(logits) + s.hp.sd_reg * penalty, logs)

"""Empirical risk minimization."""

from __future__ import annotations

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Outcome, Step


class ERM(Algorithm):
    """Minimize the mean cross entropy over all images of the step (Vapnik, 1998; DomainBed).

    L = CE(f(X), Y), the mean over the N rows: an environment with more images weighs more.
    """

    pools = True

    def objective(self, s: Step) -> Outcome:
        return Outcome(s.risk(s.logits()))

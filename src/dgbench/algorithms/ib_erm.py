"""Empirical risk minimization with an information bottleneck."""

from __future__ import annotations

import torch

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.distances import environment_variances
from dgbench.objectives.step import Outcome, Step, penalized


class IBERM(Algorithm):
    """Ask for features that vary little, a bound on their entropy (Ahuja et al., 2021; DomainBed).

    The objective is

        L = mean_e R_e + w * mean_e mean_j (unbiased variance of feature j within environment e),

    where w is 0 before step ``ib_penalty_anneal_iters`` and ``ib_lambda`` from then on; at that
    step Adam is re-created. A minibatch of one row has no variance: the loss is NaN, as in
    DomainBed.
    """

    reset_adam_at = "ib_penalty_anneal_iters"

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        penalty = environment_variances(z, s.batch).mean()
        weight = torch.where(s.step >= s.hp.ib_penalty_anneal_iters, s.hp.ib_lambda, 0.0)
        risks = s.environment_risks(s.networks.classifier(z))
        return penalized(risks.mean(), weight, penalty)

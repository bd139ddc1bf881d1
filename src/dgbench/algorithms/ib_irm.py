"""Invariant risk minimization with an information bottleneck."""

from __future__ import annotations

import torch

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.distances import environment_variances
from dgbench.objectives.step import Outcome, Step, invariance_penalty


class IBIRM(Algorithm):
    """IRM, with features that vary little (Ahuja et al., 2021; DomainBed).

    The objective is

        L = mean_e R_e + w * (the penalty of IRMv1)
            + v * mean_e mean_j (unbiased variance of feature j within environment e).

    w is 1 before step ``irm_penalty_anneal_iters`` and ``irm_lambda`` from then on; v is 0 before
    step ``ib_penalty_anneal_iters`` and ``ib_lambda`` from then on; Adam is re-created at each of
    the two. A minibatch of one row has no variance and no second half: the loss is NaN, as in
    DomainBed.
    """

    reset_adam_at = ("irm_penalty_anneal_iters", "ib_penalty_anneal_iters")

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        logits = s.networks.classifier(z)
        invariance = invariance_penalty(logits, s.batch)
        variance = environment_variances(z, s.batch).mean()
        w = torch.where(s.step >= s.hp.irm_penalty_anneal_iters, s.hp.irm_lambda, 1.0)
        v = torch.where(s.step >= s.hp.ib_penalty_anneal_iters, s.hp.ib_lambda, 0.0)
        logs = {
            "irm_penalty": invariance.detach(),
            "irm_weight": w,
            "ib_penalty": variance.detach(),
            "ib_weight": v,
        }
        return Outcome(s.environment_risks(logits).mean() + w * invariance + v * variance, logs)

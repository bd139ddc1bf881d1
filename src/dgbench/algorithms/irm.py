"""Invariant risk minimization, version 1."""

from __future__ import annotations

import torch

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Outcome, Step, invariance_penalty, penalized


class IRM(Algorithm):
    """Ask that one classifier be optimal in every environment at once
    (Arjovsky et al., 2019, IRMv1; DomainBed).

    The objective is

        L = mean_e R_e + w * mean_e G_e(even rows) * G_e(odd rows),

    where G is the derivative of the risk with respect to a factor on the logits, taken at 1: the
    mean of <softmax(l) - onehot(y), l>. The product of the two halves is an unbiased estimate of
    the squared gradient and may be negative. w is 1 before step ``irm_penalty_anneal_iters`` and
    ``irm_lambda`` from then on; at that step Adam is re-created.
    """

    reset_adam_at = "irm_penalty_anneal_iters"

    def objective(self, s: Step) -> Outcome:
        logits = s.logits()
        penalty = invariance_penalty(logits, s.batch)
        weight = torch.where(s.step >= s.hp.irm_penalty_anneal_iters, s.hp.irm_lambda, 1.0)
        return penalized(s.environment_risks(logits).mean(), weight, penalty)

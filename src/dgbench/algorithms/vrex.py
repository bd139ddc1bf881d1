"""Risk extrapolation, variance form."""

from __future__ import annotations

import torch

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Outcome, Step, penalized


class VREx(Algorithm):
    """Penalize the variance of the environments' risks (Krueger et al., 2021, eq. 8; DomainBed).

    The objective is

        L = mean_e R_e + w * mean_e (R_e - mean R)^2,

    where w is 1 before step ``vrex_penalty_anneal_iters`` and ``vrex_lambda`` from then on; at that
    step Adam is re-created.
    """

    reset_adam_at = "vrex_penalty_anneal_iters"

    def objective(self, s: Step) -> Outcome:
        risks = s.environment_risks()
        weight = torch.where(s.step >= s.hp.vrex_penalty_anneal_iters, s.hp.vrex_lambda, 1.0)
        penalty = risks.var(correction=0)
        return penalized(risks.mean(), weight, penalty)

"""Risk extrapolation, variance form."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.algorithms.base import Algorithm
from dgbench.algorithms.risks import environment_risks
from dgbench.types import EnvBatch, Networks, Outcome, Tensors


class VREx(Algorithm):
    """Penalize the variance of the environments' risks (Krueger et al., 2021, eq. 8; DomainBed).

    L = mean_e R_e + w * mean_e (R_e - mean R)^2, where w is 1 before step ``vrex_penalty_anneal_iters`` and
    ``vrex_lambda`` from then on; at that step Adam is re-created.
    """

    reset_at = "vrex_penalty_anneal_iters"

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        risks = environment_risks(nets.logits(batch.x), batch)
        weight = torch.where(step >= hp["vrex_penalty_anneal_iters"], hp["vrex_lambda"], 1.0)
        penalty = risks.var(correction=0)
        return Outcome(risks.mean() + weight * penalty, {"penalty": penalty.detach()})

"""Risk distribution matching."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.distances import kernel_distance
from dgbench.objectives.step import Outcome, Step

BANDWIDTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)


class RDM(Algorithm):
    """Match the losses of the worst environment to those of all (Nguyen et al., 2024; DomainBed).

    Let u be the losses of the images of the environment whose risk is largest, and v those of all
    images, u's included. The objective is

        L = mean_e R_e + w (K(u,u) + K(v,v) - 2 K(u,v)) + w' (var u + var v)

    with unbiased variances and K the mean over pairs of sum_g exp(-g (a-b)^2), g = 0.0001, 0.001,
    ..., 1000. Both weights are 0 before step ``rdm_penalty_anneal_iters``, then ``rdm_lambda`` and
    ``variance_weight``; at that step Adam is re-created with the learning rate ``rdm_lr``. The
    choice of the worst environment has no gradient.

    DomainBed needs minibatches of one size; here they may differ. Defaults and draws depend on the
    dataset: OfficeHome, TerraIncognita and DomainNet do without the variances.
    """

    reset_adam_at = "rdm_penalty_anneal_iters"
    reset_lr = "rdm_lr"
    min_envs = 2

    def objective(self, s: Step) -> Outcome:
        losses = F.cross_entropy(s.logits(), s.y, reduction="none")
        risks = s.batch.mean_per_env(losses)
        worst = (s.env == risks.detach().argmax()).to(losses.dtype)
        member = torch.stack([worst, torch.ones_like(worst)])
        count = member.sum(1)
        shares = member / count[:, None]
        distance = kernel_distance(losses[:, None], shares, BANDWIDTHS)
        means = shares @ losses
        deviations = (losses - means[:, None]).square()
        variance = ((member * deviations).sum(1) / (count - 1)).sum()
        late = s.step >= s.hp.rdm_penalty_anneal_iters
        weight = torch.where(late, s.hp.rdm_lambda, 0.0)
        spread_weight = torch.where(late, s.hp.variance_weight, 0.0)
        logs = {
            "penalty": distance.detach(),
            "penalty_weight": weight,
            "variance": variance.detach(),
        }
        return Outcome(risks.mean() + weight * distance + spread_weight * variance, logs)

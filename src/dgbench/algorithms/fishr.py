"""Fishr."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.containers import Networks
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Outcome, Step, penalized


class Fishr(Algorithm):
    """Match the variances of per-image gradients across environments
    (Rame et al., 2022; DomainBed).

    Per image the gradient of the cross entropy with respect to the linear classifier is r [z, 1]^T,
    r = p - onehot(y). s_e is its population variance within environment e, coordinate by
    coordinate, of which a moving average is stored:

        v_e <- ema v_e + (1-ema) s_e
        u_e = v_e / (1-ema), with a gradient through s_e
        P   = mean_e mean_coordinates (u_e - mean u)^2
        L   = CE(l, Y) + w P,

    where w is 0 before step ``penalty_anneal_iters`` and ``lambda`` from then on; at that step Adam
    is re-created. The average runs from step 0.
    """

    reset_adam_at = "penalty_anneal_iters"

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        sizes = self.sizes
        return {"variances": torch.zeros(sizes.n_envs, sizes.n_classes, sizes.n_features + 1)}

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        logits = s.networks.classifier(z)
        onehot = (torch.arange(logits.shape[1], device=z.device) == s.y[:, None]).to(z.dtype)
        residuals = s.split(logits.softmax(1) - onehot)
        inputs = s.split(torch.cat([z, torch.ones_like(z[:, :1])], 1))
        batch_variances = torch.stack(
            [_variance_of_products(r, u) for r, u in zip(residuals, inputs, strict=True)]
        )
        ema = s.hp.ema
        variances = ema * s.state["variances"] + (1 - ema) * batch_variances
        corrected = variances / (1 - ema)
        penalty = (corrected - corrected.mean(0)).pow(2).mean()
        weight = torch.where(s.step >= s.hp.penalty_anneal_iters, s.hp["lambda"], 0.0)
        return penalized(s.risk(logits), weight, penalty, {"variances": variances.detach()})


def _variance_of_products(r: Tensor, u: Tensor) -> Tensor:
    """Compute the (K, m) population variances over rows of r_k u_j, for r (B, K) and u (B, m).

    No (B, K, m) products are made.
    """
    mean_squares = (r.pow(2).T @ u.pow(2)) / len(r)
    means = r.T @ u / len(r)
    return mean_squares - means.pow(2)

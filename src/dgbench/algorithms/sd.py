"""Spectral decoupling."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.base import Algorithm
from dgbench.types import EnvBatch, Networks, Outcome, Tensors


class SD(Algorithm):
    """Penalize large logits, so that one feature does not starve the others (Pezeshki et al., 2021; DomainBed).

    L = CE(l, Y) + sd_reg * mean over rows and classes of l^2.
    """

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        logits = nets.logits(batch.x)
        penalty = logits.pow(2).mean()
        return Outcome(F.cross_entropy(logits, batch.y) + hp["sd_reg"] * penalty, {"penalty": penalty.detach()})

"""Empirical risk minimization."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.base import Algorithm
from dgbench.types import EnvBatch, Networks, Outcome, Tensors


class ERM(Algorithm):
    """Minimize the mean cross entropy over all images of the step (Vapnik, 1998).

    L = CE(f(X), Y), the mean over the N rows: an environment with more images weighs more.
    """

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        return Outcome(F.cross_entropy(nets.logits(batch.x), batch.y))

"""Maximum mean discrepancy."""

from __future__ import annotations

from torch import Tensor

from dgbench.algorithms.base import Algorithm
from dgbench.algorithms.kernels import mean_mmd
from dgbench.algorithms.risks import environment_risks, separate_features
from dgbench.types import EnvBatch, Networks, Outcome, Tensors


class MMD(Algorithm):
    """Align the features of the environments under a sum of Gaussian kernels (Li et al., 2018; DomainBed).

    L = mean_e R_e + mmd_gamma * mean over pairs of environments of K(a,a) + K(b,b) - 2 K(a,b), with K the mean over
    all row pairs, the diagonal included, of sum_g exp(-g |u-v|^2), g = 0.001, 0.01, ..., 1000. One environment:
    plain mean risk.
    """

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        z = separate_features(nets, batch)
        penalty = mean_mmd(z, batch)
        loss = environment_risks(nets.classifier(z), batch).mean() + hp["mmd_gamma"] * penalty
        return Outcome(loss, {"penalty": penalty.detach()})

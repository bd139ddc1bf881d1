"""Correlation alignment."""

from __future__ import annotations

from torch import Tensor

from dgbench.algorithms.base import Algorithm
from dgbench.algorithms.kernels import mean_moment_distance
from dgbench.algorithms.risks import environment_risks, separate_features
from dgbench.types import EnvBatch, Networks, Outcome, Tensors


class CORAL(Algorithm):
    """Align the means and covariances of the environments' features (Sun and Saenko, 2016; DomainBed).

    L = mean_e R_e + mmd_gamma * mean over pairs of environments of mean_j (mean_a - mean_b)_j^2 +
    mean_jk (C_a - C_b)_jk^2, with C the unbiased covariance of the features. One environment: plain mean risk.
    A minibatch of one row has no covariance (NaN).
    """

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        z = separate_features(nets, batch)
        penalty = mean_moment_distance(z, batch)
        loss = environment_risks(nets.classifier(z), batch).mean() + hp["mmd_gamma"] * penalty
        return Outcome(loss, {"penalty": penalty.detach()})

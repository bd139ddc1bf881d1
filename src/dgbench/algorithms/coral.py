"""Correlation alignment."""

from __future__ import annotations

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.distances import mean_moment_distance
from dgbench.objectives.step import Outcome, Step, penalized


class CORAL(Algorithm):
    """Align the means and covariances of the environments' features
    (Sun and Saenko, 2016; DomainBed).

    The objective is

        L = mean_e R_e + mmd_gamma * mean over pairs of environments of
            [mean_j (mean_a - mean_b)_j^2 + mean_jk (C_a - C_b)_jk^2]

    with C the unbiased covariance of the features. One environment: plain mean risk. A minibatch of
    one row has no covariance (NaN).
    """

    def objective(self, s: Step) -> Outcome:
        z = s.separate_features()
        penalty = mean_moment_distance(z, s.batch)
        risks = s.environment_risks(s.networks.classifier(z))
        return penalized(risks.mean(), s.hp.mmd_gamma, penalty)

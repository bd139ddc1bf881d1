"""Maximum mean discrepancy."""

from __future__ import annotations

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.distances import mean_mmd
from dgbench.objectives.step import Outcome, Step, penalized


class MMD(Algorithm):
    """Align the features of the environments under a sum of Gaussian kernels
    (Li et al., 2018; DomainBed).

    The objective is

        L = mean_e R_e + mmd_gamma * mean over pairs of environments of [K(a,a) + K(b,b) - 2 K(a,b)]

    with K the mean over all row pairs, the diagonal included, of sum_g exp(-g |u-v|^2), g = 0.001,
    0.01, ..., 1000. One environment: plain mean risk.
    """

    def objective(self, s: Step) -> Outcome:
        z = s.separate_features()
        penalty = mean_mmd(z, s.batch)
        risks = s.environment_risks(s.networks.classifier(z))
        return penalized(risks.mean(), s.hp.mmd_gamma, penalty)

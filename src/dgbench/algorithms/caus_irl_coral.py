"""Invariant causal mechanisms, by CORAL's distance."""

from __future__ import annotations

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.distances import cuts, moment_distance, regularized
from dgbench.objectives.step import Outcome, RandomInputs, Step


class CausIRLCORAL(Algorithm):
    """Align two random mixtures of the environments (Chevalley et al., 2022; DomainBed).

    Each minibatch is cut at a random row r_e in 0, ..., B_e - 1; the rows before the cuts, of all
    environments, are one group, the others the second. With CORAL's distance d of the groups,

        L = mean_e R_e + mmd_gamma * d
        d = mean_j (difference of means)_j^2 + mean_jk (difference of covariances)_jk^2.

    A group of less than two rows: d = 0 in that step. It works with one environment too.
    """

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        return cuts(sizes)

    def objective(self, s: Step) -> Outcome:
        return regularized(s, moment_distance)

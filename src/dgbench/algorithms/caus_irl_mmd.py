"""Invariant causal mechanisms, by the maximum mean discrepancy."""

from __future__ import annotations

from torch import Tensor

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.distances import cuts, kernel_distance, regularized
from dgbench.objectives.step import Outcome, RandomInputs, Step


class CausIRLMMD(Algorithm):
    """Align two random mixtures of the environments (Chevalley et al., 2022; DomainBed).

    Each minibatch is cut at a random row r_e in 0, ..., B_e - 1; the rows before the cuts, of all
    environments, are one group a, the others the second b. With the kernels K of MMD,

        L = mean_e R_e + mmd_gamma * (K(a,a) + K(b,b) - 2 K(a,b)).

    A group of less than two rows: no penalty in that step. It works with one environment too.
    """

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        return cuts(sizes)

    def objective(self, s: Step) -> Outcome:
        return regularized(s, _distance)


def _distance(z: Tensor, member: Tensor) -> Tensor:
    return kernel_distance(z, member / member.sum(1, keepdim=True).clamp_min(1))

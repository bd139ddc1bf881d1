"""Empirical quantile risk minimization."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Outcome, Step

BISECTIONS = 32


class EQRM(Algorithm):
    """Minimize a quantile of the risk over environments (Eastwood et al., 2022; DomainBed).

    Before step ``eqrm_burnin_iters`` L = mean_e R_e; from then on it is the quantile
    ``eqrm_quantile`` of a Gaussian kernel density estimate of the risks, with bandwidth

        b = 1.06 std n^(-1/5).

    The quantile is found by bisection between lo and hi, the smallest and largest risk plus b times
    the normal quantile. Its gradient is that of (1-w) lo + w hi with the w that bisection found, as
    in the reference, not that of the implicit quantile.

    At the switch Adam is re-created with learning rate ``eqrm_lr``; a burn-in that is no whole
    number, as random search draws it, never meets a step, and then nothing is re-created.
    """

    min_envs = 2  # one risk has no standard deviation
    reset_adam_at = "eqrm_burnin_iters"
    reset_lr = "eqrm_lr"

    def objective(self, s: Step) -> Outcome:
        risks = s.environment_risks(s.separate_logits())
        quantile = kernel_quantile(risks, s.hp.eqrm_quantile)
        mean = risks.mean()
        logs = {"quantile": quantile.detach(), "mean_risk": mean.detach()}
        return Outcome(torch.where(s.step >= s.hp.eqrm_burnin_iters, quantile, mean), logs)


def kernel_quantile(values: Tensor, alpha: Tensor) -> Tensor:
    """Find a quantile of the Gaussian kernel density estimate of (n,) values, n >= 2.

    See :class:`EQRM`.

    Args:
        values: (n,).
        alpha: which quantile, 0-dimensional.
    """
    ordered = values.sort().values
    # the floor keeps the gradient finite where all values are equal
    bandwidth = 1.06 * values.var().clamp_min(1e-30).sqrt() * len(values) ** -0.2
    margin = bandwidth * torch.special.ndtri(alpha)
    low = ordered[0] + margin
    high = ordered[-1] + margin
    w = _bisected(low.detach(), high.detach(), values.detach(), bandwidth.detach(), alpha)
    quantile: Tensor = (1 - w) * low + w * high
    return quantile


def _bisected(lo: Tensor, hi: Tensor, values: Tensor, bandwidth: Tensor, alpha: Tensor) -> Tensor:
    """Find the weight w for which (1-w) lo + w hi is the quantile ``alpha``."""
    w_low = torch.zeros_like(lo)
    w_high = torch.ones_like(lo)
    for _ in range(BISECTIONS):
        w_middle = (w_low + w_high) / 2
        point = (1 - w_middle) * lo + w_middle * hi
        above = torch.special.ndtr((point - values) / bandwidth).mean() > alpha
        w_low = torch.where(above, w_low, w_middle)
        w_high = torch.where(above, w_middle, w_high)
    return (w_low + w_high) / 2

"""Distances between the feature distributions of environments."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.types import EnvBatch

BANDWIDTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def gaussian_sum(a: Tensor, b: Tensor) -> Tensor:
    """(n, m), (k, m) -> (n, k): sum over ``BANDWIDTHS`` g of exp(-g |a_i - b_j|^2).

    The square is expanded in DomainBed's order, |b|^2 - 2 a.b first, since in float32 the diagonal is rounding noise
    times up to 1000; squares below 1e-30 are raised to it and have no gradient.
    """
    squares = torch.addmm(b.pow(2).sum(1)[None], a, b.T, alpha=-2) + a.pow(2).sum(1)[:, None]
    squares = squares.clamp_min(1e-30)
    total = (-BANDWIDTHS[0] * squares).exp()
    for g in BANDWIDTHS[1:]:
        total = total + (-g * squares).exp()
    return total


def mean_mmd(z: Tensor, batch: EnvBatch) -> Tensor:
    """Squared maximum mean discrepancy, averaged over the E(E-1)/2 pairs of environments; 0 for one environment.

    Args:
        z: (N, m) features.
        batch: whose ``sizes`` say which rows belong together.
    """
    n = len(batch.sizes)
    if n == 1:
        return z.new_zeros(())
    member = (batch.env[None] == torch.arange(n, device=z.device)[:, None]).to(z.dtype)
    average = member / member.sum(1, keepdim=True)  # (E, N)
    kernel = average @ gaussian_sum(z, z) @ average.T  # (E, E) mean kernel between environments
    # sum over i<j of K_ii + K_jj - 2 K_ij
    within = kernel.diagonal().sum()
    return 2 / (n * (n - 1)) * (n * within - kernel.sum())


def mean_moment_distance(z: Tensor, batch: EnvBatch) -> Tensor:
    """CORAL's distance of means and covariances, averaged over all pairs of environments; 0 for one environment.

    For each pair: mean_j (difference of means)_j^2 + mean_jk (difference of covariances)_jk^2. The average of
    (a_i - a_j)^2 over pairs is twice the unbiased variance of the a, which needs no loop over pairs.
    """
    if len(batch.sizes) == 1:
        return z.new_zeros(())
    parts = batch.split(z)
    centers = torch.stack([part.mean(0) for part in parts])
    centered = [part - center for part, center in zip(parts, centers, strict=True)]
    covariances = torch.stack([c.T @ c / (len(c) - 1) for c in centered])
    return 2 * (_mean_variance(centers) + _mean_variance(covariances))


def _mean_variance(a: Tensor) -> Tensor:
    """Mean of the unbiased variances over axis 0; torch's own ``var`` is slow over a leading axis."""
    return (a - a.mean(0)).square().mean() * (len(a) / (len(a) - 1))

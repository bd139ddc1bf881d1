"""Distances between the feature distributions of environments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dgbench.types import EnvBatch

LOWEST = -87.0  # exp of less is below 1e-38, and slower by a factor of a hundred where floats are denormal
BANDWIDTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def gaussian_sum(a: Tensor, b: Tensor) -> Tensor:
    """(n, m), (k, m) -> (n, k): sum over ``BANDWIDTHS`` g of exp(-g |a_i - b_j|^2).

    The square is expanded in DomainBed's order, |b|^2 - 2 a.b first, since in float32 the diagonal is rounding noise
    times up to 1000; squares below 1e-30 are raised to it and have no gradient.
    """
    squares = torch.addmm(b.pow(2).sum(1)[None], a, b.T, alpha=-2) + a.pow(2).sum(1)[:, None]
    total: Tensor = GaussianSum.apply(squares.clamp_min(1e-30))[0]
    return total


class GaussianSum(torch.autograd.Function):
    """Squares s -> sum over ``BANDWIDTHS`` g of exp(-g s), once differentiable.

    The slope is made on the way, so that one matrix is kept for the gradient instead of seven; ``vmap`` takes one
    member after the other, whose matrix fits the cache.
    """

    @staticmethod
    def forward(squares: Tensor) -> tuple[Tensor, Tensor]:
        """The sum and its slope."""
        total, slope, term = torch.zeros_like(squares), torch.zeros_like(squares), torch.empty_like(squares)
        for g in BANDWIDTHS:
            torch.mul(squares, -g, out=term).clamp_min_(LOWEST).exp_()
            total += term
            slope.sub_(term, alpha=g)
        return total, slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep the slope."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Gradient of the squares."""
        (slope,) = ctx.saved_tensors
        grad: Tensor = grads[0] * slope
        return grad

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], squares: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """One call for each member."""
        each = [GaussianSum.apply(own) for own in squares.unbind(in_dims[0])]
        return (torch.stack([total for total, _ in each]), torch.stack([slope for _, slope in each])), (0, 0)


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

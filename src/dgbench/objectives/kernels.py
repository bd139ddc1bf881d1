"""Distances between the feature distributions of environments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dgbench.tensors import EnvBatch

LOWEST = -87.0  # exp of less is below 1e-38, and slower by a factor of a hundred where floats are denormal
LEAST = 1e-30  # squares below are raised to it and have no gradient (DomainBed)
BANDWIDTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


class MeanKernel(torch.autograd.Function):
    """Features (N, m), weights of rows (E, N) -> (E, E): the weighted means of a sum of Gaussian kernels.

    The kernel of rows i, j is the sum over ``BANDWIDTHS`` g of exp(-g |z_i - z_j|^2). The square is expanded in
    DomainBed's order, |b|^2 - 2 a.b first, since in float32 the diagonal is rounding noise times up to 1000.

    Once differentiable. The kernel's slope is made on the way, so that one matrix is kept for the gradient instead of
    seven; on a CPU one run of a stack after the other, whose matrices fit the cache.
    """

    @staticmethod
    def forward(z: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The means, and the slope at each pair of rows, (N, N); both with a leading axis if ``z`` has one."""
        members, n = z.view(-1, *z.shape[-2:]), z.shape[-2]
        means, slopes = z.new_empty(len(members), *2 * (len(weights),)), z.new_zeros(len(members), n, n)
        size = 1 if z.device.type == "cpu" else len(members)
        for own, mean, slope in zip(*(torch.split(each, size) for each in (members, means, slopes)), strict=True):
            norms = own.square().sum(2)
            squares = torch.baddbmm(norms[:, None], own, own.mT, alpha=-2).add_(norms[:, :, None]).clamp_min_(LEAST)
            total, term = torch.zeros_like(squares), torch.empty_like(squares)
            for g in BANDWIDTHS:
                torch.mul(squares, -g, out=term).clamp_min_(LOWEST).exp_()
                total += term
                slope.sub_(term, alpha=g)
            slope.masked_fill_(squares <= LEAST, 0)
            mean.copy_(weights @ total @ weights.T)
        return means.view(*z.shape[:-2], *means.shape[1:]), slopes.view(*z.shape[:-2], n, n)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep the features, the weights and the slope."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Gradient of the features."""
        z, weights, slope = ctx.saved_tensors
        pull = weights.T @ grads[0] @ weights * slope
        pull = pull + pull.mT
        return 2 * (pull.sum(-1, keepdim=True) * z - pull @ z), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], z: Tensor, weights: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """All runs as one call; they share the weights."""
        assert in_dims[0] is not None and in_dims[1] is None
        means, slopes = MeanKernel.apply(z.movedim(in_dims[0], 0).contiguous(), weights)
        return (means, slopes), (0, 0)


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
    kernel, _ = MeanKernel.apply(z, average)  # (E, E) between environments
    # sum over i<j of K_ii + K_jj - 2 K_ij
    within = kernel.diagonal().sum()
    distance: Tensor = 2 / (n * (n - 1)) * (n * within - kernel.sum())
    return distance


def mean_moment_distance(z: Tensor, batch: EnvBatch) -> Tensor:
    """CORAL's distance of means and covariances, averaged over all pairs of environments; 0 for one environment.

    For each pair: mean_j (difference of means)_j^2 + mean_jk (difference of covariances)_jk^2. The average of
    (a_i - a_j)^2 over pairs is twice the unbiased variance of the a, which needs no loop over pairs.
    """
    if len(batch.sizes) == 1:
        return z.new_zeros(())
    if len(set(batch.sizes)) == 1:
        centers, covariances = _moments(z.view(len(batch.sizes), -1, z.shape[1]))
    else:
        each = [_moments(part) for part in batch.split(z)]
        centers, covariances = (torch.stack(values) for values in zip(*each, strict=True))
    return 2 * (_mean_variance(centers) + _mean_variance(covariances))


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """(..., n, m) -> the mean of the rows, (..., m), and their unbiased covariance, (..., m, m)."""
    center = x.mean(-2)
    centered = x - center[..., None, :]
    return center, centered.mT @ centered / (x.shape[-2] - 1)


def _mean_variance(a: Tensor) -> Tensor:
    """Mean of the unbiased variances over axis 0; torch's own ``var`` is slow over a leading axis."""
    center = a.mean(0).detach()  # as deviations sum to 0, no gradient goes through it
    variance: Tensor = F.mse_loss(a, center.expand_as(a)) * (len(a) / (len(a) - 1))
    return variance

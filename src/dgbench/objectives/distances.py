"""Distances between the feature distributions of environments, or of random groups of their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dgbench.batches import EnvBatch
from dgbench.objectives.step import Integers, Outcome, RandomInputs, Step, penalized

# exp of less is below 1e-38, and slower by a factor of a hundred where floats are denormal
LOWEST = -87.0
LEAST = 1e-30  # squares below are raised to it and have no gradient (DomainBed)
BANDWIDTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


class MeanKernel(torch.autograd.Function):
    """Features (N, m), weights of rows (E, N) -> (E, E): the weighted means of a sum of Gaussian
    kernels.

    The kernel of rows i, j is the sum over the bandwidths g of exp(-g |z_i - z_j|^2). The square is
    expanded in DomainBed's order, |b|^2 - 2 a.b first, since in float32 the diagonal is rounding
    noise times up to 1000.

    Once differentiable, in the features alone. The kernel's slope is made on the way, so that one
    matrix is kept for the gradient instead of one per bandwidth; on a CPU one run of a stack after
    the other, whose matrices fit the cache.
    """

    @staticmethod
    def forward(z: Tensor, weights: Tensor, bandwidths: tuple[float, ...]) -> tuple[Tensor, Tensor]:
        """Compute the means, and the slope at each pair of rows, (N, N); both with a leading axis
        if ``z`` has one.

        The weights then have that axis, of runs, too, or are the same for every run.
        """
        runs, n = z.view(-1, *z.shape[-2:]), z.shape[-2]
        shares = weights.expand(len(runs), *weights.shape[-2:])
        means, slopes = (
            z.new_empty(len(runs), *2 * (weights.shape[-2],)),
            z.new_zeros(len(runs), n, n),
        )
        size = 1 if z.device.type == "cpu" else len(runs)
        parts = zip(
            *(torch.split(values, size) for values in (runs, shares, means, slopes)), strict=True
        )
        for x, share, mean, slope in parts:
            norms = x.square().sum(2)
            squares = (
                torch.baddbmm(norms[:, None], x, x.mT, alpha=-2)
                .add_(norms[:, :, None])
                .clamp_min_(LEAST)
            )
            total, term = torch.zeros_like(squares), torch.empty_like(squares)
            for g in bandwidths:
                torch.mul(squares, -g, out=term).clamp_min_(LOWEST).exp_()
                total += term
                slope.sub_(term, alpha=g)
            slope.masked_fill_(squares <= LEAST, 0)
            mean.copy_(share @ total @ share.mT)
        return means.view(*z.shape[:-2], *means.shape[1:]), slopes.view(*z.shape[:-2], n, n)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep the features, the weights and the slope for the backward pass."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[:2], output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Compute the gradient with respect to the features."""
        z, weights, slope = ctx.saved_tensors
        force = weights.mT @ grads[0] @ weights * slope
        force = force + force.mT
        return 2 * (force.sum(-1, keepdim=True) * z - force @ z), None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        z: Tensor,
        weights: Tensor,
        bandwidths: tuple[float, ...],
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """Evaluate all runs in one call."""
        assert in_dims[0] is not None
        shares = weights if in_dims[1] is None else weights.movedim(in_dims[1], 0).contiguous()
        means, slopes = MeanKernel.apply(z.movedim(in_dims[0], 0).contiguous(), shares, bandwidths)
        return (means, slopes), (0, 0)


def mean_kernels(z: Tensor, weights: Tensor, bandwidths: tuple[float, ...] = BANDWIDTHS) -> Tensor:
    """Compute (E, E) weighted means of Gaussian kernels between groups of rows, each row paired
    with itself included.

    Args:
        z: (N, m) features.
        weights: (E, N) of the rows in each group, constants; they may differ between the runs of a
            stack.
        bandwidths: factors of the squared distances, whose kernels are added.
    """
    means: Tensor = MeanKernel.apply(z, weights, bandwidths)[0]
    return means


def kernel_distance(
    z: Tensor, weights: Tensor, bandwidths: tuple[float, ...] = BANDWIDTHS
) -> Tensor:
    """Compute the squared MMD of two groups of rows, K_aa + K_bb - 2 K_ab; ``weights`` is (2, N)."""
    kernel = mean_kernels(z, weights, bandwidths)
    return kernel[0, 0] + kernel[1, 1] - 2 * kernel[0, 1]


def mean_mmd(z: Tensor, batch: EnvBatch) -> Tensor:
    """Average the squared maximum mean discrepancy over the E(E-1)/2 pairs of environments; 0 for
    one environment.

    Args:
        z: (N, m) features.
        batch: whose ``sizes`` say which rows belong together.
    """
    n = len(batch.sizes)
    if n == 1:
        return z.new_zeros(())
    member = (batch.env[None] == torch.arange(n, device=z.device)[:, None]).to(z.dtype)
    average = member / member.sum(1, keepdim=True)  # (E, N)
    kernel = mean_kernels(z, average)  # (E, E) between environments
    # sum over i<j of K_ii + K_jj - 2 K_ij
    within = kernel.diagonal().sum()
    distance: Tensor = 2 / (n * (n - 1)) * (n * within - kernel.sum())
    return distance


def mean_moment_distance(z: Tensor, batch: EnvBatch) -> Tensor:
    """Average CORAL's distance of means and covariances over all pairs of environments; 0 for one
    environment.

    For each pair: mean_j (difference of means)_j^2 + mean_jk (difference of covariances)_jk^2. The
    average of (a_i - a_j)^2 over pairs is twice the unbiased variance of the a, which needs no loop
    over pairs.
    """
    if len(batch.sizes) == 1:
        return z.new_zeros(())
    if len(set(batch.sizes)) == 1:
        centers, covariances = _moments(z.view(len(batch.sizes), -1, z.shape[1]))
    else:
        moments = [_moments(part) for part in batch.split(z)]
        centers, covariances = (torch.stack(values) for values in zip(*moments, strict=True))
    return 2 * (_mean_variance(centers) + _mean_variance(covariances))


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean, (..., m), and the unbiased covariance, (..., m, m), of the rows of (..., n,
    m).
    """
    center = x.mean(-2)
    centered = x - center[..., None, :]
    return center, centered.mT @ centered / (x.shape[-2] - 1)


def _mean_variance(a: Tensor) -> Tensor:
    """Average all entries' unbiased variances over axis 0; torch's own ``var`` is slow over a
    leading axis.
    """
    center = a.mean(0).detach()  # as deviations sum to 0, no gradient goes through it
    variance: Tensor = F.mse_loss(a, center.expand_as(a)) * (len(a) / (len(a) - 1))
    return variance


def moment_distance(z: Tensor, member: Tensor) -> Tensor:
    """Compute CORAL's distance of means and covariances of two groups of rows, (2, N) ones and
    zeros.

    A group of less than two rows counts as one of two, so that nothing is divided by zero.
    """
    count = member.sum(1).clamp_min(2)
    centers = member @ z / count[:, None]
    centered = [
        (z - center) * row_mask[:, None]
        for center, row_mask in zip(centers.unbind(), member.unbind(), strict=True)
    ]
    a, b = (u.T @ u / (n - 1) for u, n in zip(centered, count.unbind(), strict=True))
    return (centers[0] - centers[1]).square().mean() + (a - b).square().mean()


def environment_variances(z: Tensor, batch: EnvBatch) -> Tensor:
    """Compute the (E, m) unbiased variances of (N, m) features within each environment; NaN for one
    row.
    """
    if len(set(batch.sizes)) == 1:
        return _variances(z.view(len(batch.sizes), -1, z.shape[1]))
    return torch.stack([_variances(part) for part in batch.split(z)])


def _variances(x: Tensor) -> Tensor:
    """Compute the (..., m) unbiased variances of the columns of (..., n, m)."""
    squares: Tensor = (x - x.mean(-2, keepdim=True)).square().sum(-2)
    return squares / (x.shape[-2] - 1)


def cuts(sizes: tuple[int, ...]) -> RandomInputs:
    """Describe the random inputs of :func:`two_groups`: one cut of each minibatch."""
    shape = (len(sizes),)
    return {
        "cuts": Integers(
            shape, "first row of the second group in each minibatch", below=tuple(sizes)
        )
    }


def two_groups(s: Step) -> Tensor:
    """Split the rows at the cuts of their minibatches: (2, N) ones and zeros, the rows before the
    cuts and the rest.
    """
    position = torch.cat([torch.arange(size, device=s.x.device) for size in s.sizes])
    before = position < s.random["cuts"][s.env]
    return torch.stack([before, ~before]).to(s.x.dtype)


def regularized(s: Step, distance: Callable[[Tensor, Tensor], Tensor]) -> Outcome:
    """Add to the mean risk ``mmd_gamma`` times the groups' distance; 0 if it is NaN or a group has
    less than two rows.

    Args:
        distance: (N, m) features and (2, N) membership -> scalar, finite for every membership.
    """
    z = s.separate_features()
    member = two_groups(s)
    value = distance(z, member)
    valid = (member.sum(1) > 1).all() & ~value.isnan()
    penalty = torch.where(valid, value, 0.0)
    return penalized(s.environment_risks(s.networks.classifier(z)).mean(), s.hp.mmd_gamma, penalty)

"""Distances between the feature distributions of environments or of random groups of rows."""

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
LEAST_EXPONENT = -87.0
LEAST_SQUARE = 1e-30  # a square below it is raised to it and has no gradient (DomainBed)
BANDWIDTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


class MeanKernel(torch.autograd.Function):
    """Weighted means of a sum of Gaussian kernels: features (N, m), weights (E, N) -> (E, E).

    The kernel of rows i, j is the sum over the bandwidths g of exp(-g |z_i - z_j|^2). The square is
    expanded in DomainBed's order, |b|^2 - 2 a.b first, since in float32 the diagonal is rounding
    noise times up to 1000.

    It can be differentiated once, by the features alone. The kernel's slope is made on the way, so
    that one matrix is kept for the gradient instead of one per bandwidth; on a CPU one run of a
    stack after the other, whose matrices fit the cache.
    """

    @staticmethod
    def forward(z: Tensor, weights: Tensor, bandwidths: tuple[float, ...]) -> tuple[Tensor, Tensor]:
        """Compute the means, and the (N, N) slope at each pair of rows.

        Both have a leading axis, of runs, if ``z`` has one. The weights then have it too, or are
        the same for every run.
        """
        n = z.shape[-2]
        n_groups = weights.shape[-2]
        runs = z.view(-1, *z.shape[-2:])
        shares = weights.expand(len(runs), *weights.shape[-2:])
        means = z.new_empty(len(runs), n_groups, n_groups)
        slopes = z.new_zeros(len(runs), n, n)
        size = 1 if z.device.type == "cpu" else len(runs)
        parts = [torch.split(values, size) for values in (runs, shares, means, slopes)]
        for x, share, mean, slope in zip(*parts, strict=True):
            norms = x.square().sum(2)
            squares = torch.baddbmm(norms[:, None], x, x.mT, alpha=-2)
            squares.add_(norms[:, :, None]).clamp_min_(LEAST_SQUARE)
            total = torch.zeros_like(squares)
            term = torch.empty_like(squares)
            for g in bandwidths:
                torch.mul(squares, -g, out=term).clamp_min_(LEAST_EXPONENT).exp_()
                total += term
                slope.sub_(term, alpha=g)
            slope.masked_fill_(squares <= LEAST_SQUARE, 0)
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
    """Compute the (E, E) weighted means of Gaussian kernels between groups of rows.

    Each row is paired with itself too.

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
    """Compute the squared MMD of two groups of rows, K_aa + K_bb - 2 K_ab.

    ``weights`` is (2, N).
    """
    kernel = mean_kernels(z, weights, bandwidths)
    return kernel[0, 0] + kernel[1, 1] - 2 * kernel[0, 1]


def mean_mmd(z: Tensor, batch: EnvBatch) -> Tensor:
    """Average the squared maximum mean discrepancy over the E(E-1)/2 pairs of environments.

    It is 0 for one environment.

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
    """Average CORAL's distance of means and covariances over all pairs of environments.

    For each pair it is

        mean_j (difference of means)_j^2 + mean_jk (difference of covariances)_jk^2,

    and 0 for one environment. The average of (a_i - a_j)^2 over pairs is twice the unbiased
    variance of the a, which needs no loop over pairs.
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
    """Compute the (..., m) mean and the (..., m, m) unbiased covariance of (..., n, m) rows."""
    center = x.mean(-2)
    centered = x - center[..., None, :]
    return center, centered.mT @ centered / (x.shape[-2] - 1)


def _mean_variance(a: Tensor) -> Tensor:
    """Average all entries' unbiased variances over axis 0.

    torch's own ``var`` is slow over a leading axis.
    """
    center = a.mean(0).detach()  # as deviations sum to 0, no gradient goes through it
    variance: Tensor = F.mse_loss(a, center.expand_as(a)) * (len(a) / (len(a) - 1))
    return variance


def moment_distance(z: Tensor, member: Tensor) -> Tensor:
    """Compute CORAL's distance of means and covariances of two groups of rows.

    A group of less than two rows counts as one of two, so that nothing is divided by zero.

    Args:
        z: (N, m) features.
        member: (2, N) ones and zeros.
    """
    count = member.sum(1).clamp_min(2)
    centers = member @ z / count[:, None]

    def covariance(group: int) -> Tensor:
        centered = (z - centers[group]) * member[group][:, None]
        return centered.T @ centered / (count[group] - 1)

    gap = (centers[0] - centers[1]).square().mean()
    return gap + (covariance(0) - covariance(1)).square().mean()


def environment_variances(z: Tensor, batch: EnvBatch) -> Tensor:
    """Compute the (E, m) unbiased variances of (N, m) features within each environment.

    They are NaN in an environment of one row.
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
    about = "first row of the second group in each minibatch"
    return {"cuts": Integers((len(sizes),), about, below=tuple(sizes))}


def two_groups(s: Step) -> Tensor:
    """Split the rows at the cuts of their minibatches.

    Returns:
        (2, N) ones and zeros: the rows before the cuts, and the rest.
    """
    position = torch.cat([torch.arange(size, device=s.x.device) for size in s.sizes])
    before = position < s.random["cuts"][s.env]
    return torch.stack([before, ~before]).to(s.x.dtype)


def regularized(s: Step, distance: Callable[[Tensor, Tensor], Tensor]) -> Outcome:
    """Add to the mean risk ``mmd_gamma`` times the groups' distance.

    The distance counts as 0 if it is NaN or a group has less than two rows.

    Args:
        s: the step.
        distance: (N, m) features and (2, N) membership -> scalar, finite for every membership.
    """
    z = s.separate_features()
    member = two_groups(s)
    value = distance(z, member)
    valid = (member.sum(1) > 1).all() & ~value.isnan()
    penalty = torch.where(valid, value, 0.0)
    risks = s.environment_risks(s.networks.classifier(z))
    return penalized(risks.mean(), s.hp.mmd_gamma, penalty)

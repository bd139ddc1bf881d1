"""What translators of images and their discriminators are trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

GRADIENT_WEIGHT = 0.01  # of the squared gradient at real images

Discriminator = Callable[[Tensor], Sequence[Tensor]]


def gray(x: Tensor) -> Tensor:
    """(n, C, H, W) -> (n, 1, H, W), the mean of the channels."""
    return x.mean(1, keepdim=True)


def distances(made: Tensor, x: Tensor) -> Tensor:
    """(n, C, H, W) twice -> (n,) mean absolute differences of images."""
    return (made - x).abs().flatten(1).mean(1)


def discrimination_loss(discriminator: Discriminator, fake: Tensor, real: Tensor) -> Tensor:
    """Sum over scales of mean D(fake)^2 + mean (D(real) - 1)^2 + 0.01 mean_i |d sum D(real) / d real_i|^2.

    Differentiable by the discriminator's parameters, the last term too.
    """

    def totals(x: Tensor) -> tuple[Tensor, list[Tensor]]:
        said = list(discriminator(x))
        return torch.stack([each.sum() for each in said]), said

    sums, pull, said = torch.func.vjp(totals, real, has_aux=True)  # type: ignore[misc]
    slopes = [pull(row, create_graph=True)[0] for row in torch.eye(len(said), dtype=sums.dtype, device=sums.device)]
    terms = [
        made.square().mean() + (each - 1).square().mean() + GRADIENT_WEIGHT * slope.flatten(1).square().sum(1).mean()
        for made, each, slope in zip(discriminator(fake), said, slopes, strict=True)
    ]
    return torch.stack(terms).sum()


def deception_loss(discriminator: Discriminator, fake: Tensor) -> Tensor:
    """Sum over scales of 2 mean (D(fake) - 1)^2."""
    return 2 * torch.stack([(each - 1).square().mean() for each in discriminator(fake)]).sum()

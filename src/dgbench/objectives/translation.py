"""What translators of images and their discriminators compute and are trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.modules import AnyNetworks
from dgbench.objectives.gradients import detached

GRADIENT_WEIGHT = 0.01  # of the squared gradient at real images
PARTS = 4  # of the semantics of large images

Discriminator = Callable[..., Any]  # (n, C, H, W) -> one tensor for each scale


def gray(x: Tensor) -> Tensor:
    """(n, C, H, W) -> (n, 1, H, W), the mean of the channels."""
    return x.mean(1, keepdim=True)


def distances(made: Tensor, x: Tensor) -> Tensor:
    """(n, C, H, W) twice -> (n,) mean absolute differences of images."""
    return (made - x).abs().flatten(1).mean(1)


def semantics(featurizer: Callable[..., Any], x: Tensor, parts: str) -> tuple[Tensor, Tensor]:
    """(n, C, H, W) images -> their (n, m) features, and what a decoder takes for their semantics.

    Args:
        parts: ``none``: the features; ``pooled``: (n, 4 m), each repeated; ``map``: (n, 4 m), each channel's maxima
            over four horizontal bands of the last map.
    """
    if parts == "map":
        z, maps = featurizer(x, maps=True)
        return z, F.adaptive_max_pool2d(maps[-1], (PARTS, 1)).flatten(1)
    z = featurizer(x)
    return z, z.repeat_interleave(PARTS, 1) if parts == "pooled" else z


def discrimination_loss(discriminator: Discriminator, fake: Tensor, real: Tensor) -> Tensor:
    """Sum over scales of mean D(fake)^2 + mean (D(real) - 1)^2 + 0.01 mean_i |d sum D(real) / d real_i|^2.

    Differentiable by the discriminator's parameters, the last term too.
    """

    def totals(x: Tensor) -> tuple[Tensor, list[Tensor]]:
        said = list(discriminator(x))
        return torch.stack([each.sum() for each in said]), said

    sums, pull, said = torch.func.vjp(totals, real, has_aux=True)  # type: ignore[misc]
    slopes = [pull(row, create_graph=True)[0] for row in torch.eye(len(said), dtype=sums.dtype, device=sums.device)]
    return torch.stack([
        made.square().mean() + (each - 1).square().mean() + GRADIENT_WEIGHT * slope.flatten(1).square().sum(1).mean()
        for made, each, slope in zip(discriminator(fake), said, slopes, strict=True)
    ]).sum()  # fmt: skip


def deception_loss(discriminator: Discriminator, fakes: Sequence[Tensor]) -> Tensor:
    """Sum over batches of images and over scales of 2 mean (D(fake) - 1)^2."""
    return 2 * torch.stack([(each - 1).square().mean() for fake in fakes for each in discriminator(fake)]).sum()


def swapped(
    nets: AnyNetworks, a: Tensor, b: Tensor, parts: str, evaluate: bool = False
) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Two batches of images with their variations exchanged, by ``nets.translator``.

    Args:
        a, b: (n, C, H, W), whose semantics ``nets.initial_featurizer`` reads.
        parts: see :func:`semantics`.
        evaluate: the translator is in evaluation mode.

    Returns:
        x_ba, with the semantics of ``a`` and the variation of ``b``; x_ab; the variations and the semantics of both.
    """
    v = [nets.translator(gray(x), evaluate=evaluate) for x in (a, b)]
    f = [semantics(nets.initial_featurizer, x, parts)[1] for x in (a, b)]
    return nets.translator(v[1], f[0], evaluate=evaluate), nets.translator(v[0], f[1], evaluate=evaluate), v, f


def late_weight(update: Tensor, begin: Tensor, first: Tensor, slope: Tensor, top: Tensor) -> Tensor:
    """Weight in update 1, 2, ...: ``first``, and after ``begin`` rising to ``top``; 0 if it was 0 in the one before."""

    def weight(k: Tensor) -> Tensor:
        return torch.where(k > begin, torch.minimum(first + slope * (k - begin.floor()), top), first)

    return torch.where(weight(update - 1) == 0, 0.0, weight(update))


def cycled(nets: AnyNetworks, semantic: Tensor, varied: Tensor, parts: str, learns: Tensor) -> Tensor:
    """Images made of the semantics of one batch of made images and the variation of another, by ``nets.translator``.

    Args:
        semantic: (n, C, H, W), constants.
        varied: (n, C, H, W).
        parts: see :func:`semantics`.
        learns: 0-dimensional bool; True: the encoder gets the gradient, and ``varied`` is constant; False: ``varied``
            gets it, and the encoder is constant, in evaluation mode.
    """
    before = nets.statistics()
    moved = {key: value.clone() for key, value in before.items()}
    live = nets.bind(moved).translator(gray(varied.detach()))
    for key, value in before.items():
        value.copy_(torch.where(learns, moved[key], value))
    constant = nets.bind(detached(nets.params("translator"))).translator(gray(varied), evaluate=True)
    f = semantics(nets.initial_featurizer, semantic.detach(), parts)[1]
    return nets.translator(torch.where(learns, live, constant), f)


def total(terms: Iterable[Tensor]) -> Tensor:
    """The sum of the means of some tensors."""
    return torch.stack([each.mean() for each in terms]).sum()

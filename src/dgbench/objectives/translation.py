"""What translators of images and their discriminators compute and are trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import AnyNetworks
from dgbench.objectives.gradients import copied, detached

GRADIENT_WEIGHT = 0.01  # of the squared gradient at real images
PARTS = 4  # of the semantics of large images

Discriminator = Callable[..., Any]  # (n, C, H, W) -> one tensor for each scale


def gray(x: Tensor) -> Tensor:
    """Average the channels of (n, C, H, W) images to (n, 1, H, W)."""
    return x.mean(1, keepdim=True)


def distances(images: Tensor, x: Tensor) -> Tensor:
    """Compute the (n,) mean absolute differences between two batches of (n, C, H, W) images."""
    return (images - x).abs().flatten(1).mean(1)


def semantics(featurizer: Callable[..., Any], x: Tensor, parts: str) -> tuple[Tensor, Tensor]:
    """Compute the (n, m) features of n images, and what a decoder takes for their semantics.

    Args:
        featurizer: maps images to features.
        x: (n, C, H, W) images.
        parts: ``none``: the features; ``pooled``: (n, 4 m), each repeated; ``map``: (n, 4 m), each
            channel's maxima over four horizontal bands of the last map.
    """
    if parts == "map":
        z, maps = featurizer(x, maps=True)
        return z, F.adaptive_max_pool2d(maps[-1], (PARTS, 1)).flatten(1)
    z = featurizer(x)
    return z, z.repeat_interleave(PARTS, 1) if parts == "pooled" else z


def discrimination_loss(discriminator: Discriminator, fake: Tensor, real: Tensor) -> Tensor:
    """Compute the loss of a discriminator, which can be differentiated by its parameters.

    It is the sum over scales of

        mean D(fake)^2 + mean (D(real) - 1)^2 + 0.01 mean_i |d sum D(real) / d real_i|^2.
    """

    def totals(x: Tensor) -> tuple[Tensor, list[Tensor]]:
        outputs = list(discriminator(x))
        return torch.stack([output.sum() for output in outputs]), outputs

    sums, backward, outputs = torch.func.vjp(totals, real, has_aux=True)  # type: ignore[misc]
    slopes = [
        backward(row, create_graph=True)[0]
        for row in torch.eye(len(outputs), dtype=sums.dtype, device=sums.device)
    ]
    losses = []
    for d_fake, d_real, slope in zip(discriminator(fake), outputs, slopes, strict=True):
        loss = d_fake.square().mean() + (d_real - 1).square().mean()
        losses.append(loss + GRADIENT_WEIGHT * slope.flatten(1).square().sum(1).mean())
    return torch.stack(losses).sum()


def deception_loss(discriminator: Discriminator, fakes: Sequence[Tensor]) -> Tensor:
    """Sum over batches of images and over scales 2 mean (D(fake) - 1)^2."""
    losses = []
    for fake in fakes:
        losses += [(output - 1).square().mean() for output in discriminator(fake)]
    return 2 * torch.stack(losses).sum()


def swapped(
    nets: AnyNetworks, a: Tensor, b: Tensor, parts: str, evaluate: bool = False
) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Exchange the variations of two batches of images, by ``nets.translator``.

    Args:
        a, b: (n, C, H, W), whose semantics ``nets.initial_featurizer`` reads.
        parts: see :func:`semantics`.
        evaluate: the translator is in evaluation mode.

    Returns:
        x_ba, with the semantics of ``a`` and the variation of ``b``; x_ab; the variations and the
        semantics of both.
    """
    v = [nets.translator(gray(x), evaluate=evaluate) for x in (a, b)]
    f = [semantics(nets.initial_featurizer, x, parts)[1] for x in (a, b)]
    x_ba = nets.translator(v[1], f[0], evaluate=evaluate)
    x_ab = nets.translator(v[0], f[1], evaluate=evaluate)
    return x_ba, x_ab, v, f


def late_weight(update: Tensor, begin: Tensor, first: Tensor, slope: Tensor, top: Tensor) -> Tensor:
    """Compute a weight in update 1, 2, ...: ``first``, rising after ``begin`` to ``top``.

    It is 0 if it was 0 one update before.
    """

    def weight(k: Tensor) -> Tensor:
        risen = first + slope * (k - begin.floor())
        return torch.where(k > begin, torch.minimum(risen, top), first)

    return torch.where(weight(update - 1) == 0, 0.0, weight(update))


def cycled(
    nets: AnyNetworks, x_ba: Tensor, x_ab: Tensor, parts: str, learns: Tensor
) -> tuple[list[Tensor], AnyNetworks]:
    """Swap once more the images that :func:`swapped` made.

    Ideally, this gives back the images that it was given.

    Args:
        nets: the networks, whose own statistics do not change.
        x_ba, x_ab: (n, C, H, W); the gradient does not go through their semantics.
        parts: see :func:`semantics`.
        learns: 0-dimensional bool; True: the gradient of the variations goes to the encoder, not to
            the images; False: it goes to the images, and the encoder is constant, in evaluation
            mode.

    Returns:
        Images a and b, and the networks bound to the statistics that this leaves.
    """
    images = []
    for semantic, varied in ((x_ba, x_ab), (x_ab, x_ba)):
        before = nets.statistics()
        moved = copied(before)
        live = nets.bind(moved).translator(gray(varied.detach()))
        fixed = nets.bind({**copied(before), **detached(nets.params("translator"))})
        constant = fixed.translator(gray(varied), evaluate=True)
        left = {key: torch.where(learns, moved[key], value) for key, value in before.items()}
        nets = nets.bind(left)
        f = semantics(nets.initial_featurizer, semantic.detach(), parts)[1]
        images.append(nets.translator(torch.where(learns, live, constant), f))
    return images, nets


def total(terms: Iterable[Tensor]) -> Tensor:
    """Sum the means of some tensors."""
    return torch.stack([term.mean() for term in terms]).sum()

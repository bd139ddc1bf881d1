"""Defocus, glass, motion and zoom blur (Hendrycks & Dietterich 2019, appendix A). Images are (n, 3, H, W) in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.data.transforms.corruptions.chance import Chance
from dgbench.data.transforms.corruptions.filters import convolve, disk, edge, gaussian, magnified, motion


def defocus_blur(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Every point becomes a disk; draws nothing."""
    radius, softness = ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5))[severity - 1]
    return convolve(x, disk(radius, softness))


def glass_blur(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Frosted glass: blurred, pixels copied from close by, blurred again."""
    sigma, reach, rounds = ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))[severity - 1]
    blurred = gaussian(x, (sigma, sigma), 4.0, edge)
    flat = torch.floor(blurred * 255 + 1e-3).div_(255).flatten(2)
    for _ in range(rounds):
        source = _scattered(len(x), x.shape[2], x.shape[3], reach, chance)
        flat = flat.gather(2, source[:, None].expand_as(flat))
    return gaussian(flat.view_as(x), (sigma, sigma), 4.0, edge)


def _scattered(n: int, height: int, width: int, reach: int, chance: Chance) -> Tensor:
    """(n, height * width) position from which each pixel is copied in one round.

    The published code walks the pixels from the last to the first and means to swap each with one at most ``reach``
    rows and columns away, but NumPy's views make the swap a copy. A pixel may so be copied from one that was
    overwritten earlier in the same walk; following those chains with pointer doubling gives the same result at once.
    """
    rows, columns = height - 2 * reach, width - 2 * reach
    offset = chance.integers(-reach, reach, n, rows, columns, 2).flip(1, 2)  # drawn in the order of the walk
    own = torch.arange(height * width).view(height, width)
    inner = own[reach + 1 : reach + 1 + rows, reach + 1 : reach + 1 + columns]
    source = own.expand(n, -1, -1).clone()
    source[:, reach + 1 : reach + 1 + rows, reach + 1 : reach + 1 + columns] = (
        inner + offset[..., 1] * width + offset[..., 0]
    )
    source, place = source.flatten(1), own.flatten()
    last = torch.where(source > place, source, place)  # a pixel already overwritten stands further on in the image
    while True:
        further = last.gather(1, last)
        if torch.equal(further, last):
            return source.gather(1, last)
        last = further


def motion_blur(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """The camera moves in a direction up to 45 degrees off the horizontal."""
    radius, sigma = ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15))[severity - 1]
    return motion(x, radius, sigma, chance.uniform(-45, 45, len(x)))


def zoom_blur(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """The camera moves toward the object: a mean over magnifications; draws nothing."""
    count, step = ((12, 0.01), (16, 0.01), (11, 0.02), (13, 0.02), (11, 0.03))[severity - 1]
    total = x.clone()
    for i in range(count):
        total += magnified(x, 1 + i * step)[..., : x.shape[2], : x.shape[3]]
    return total / (count + 1)

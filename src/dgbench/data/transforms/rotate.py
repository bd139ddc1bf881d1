"""Gray pictures turned about their center, pixel for pixel as Pillow turns them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

AT_ONCE = 4096  # pictures, to bound memory


def rotated(images: Tensor, angle: float) -> Tensor:
    """Pictures turned counter-clockwise; bilinear, 0 where nothing of the picture lies, fractions cut off.

    RotatedMNIST of DomainBed turns digits so. Other libraries round, or place the center elsewhere.

    Args:
        images: (n, 1, S, S) uint8.
        angle: in degrees.

    Returns:
        (n, 1, S, S) uint8.
    """
    side = images.shape[-1]
    turn = -math.radians(angle % 360)
    cosine, sine = round(math.cos(turn), 15), round(math.sin(turn), 15)
    centers, half = torch.arange(side, dtype=torch.float64) + 0.5, side / 2
    v, u = (axis.flatten() for axis in torch.meshgrid(centers, centers, indexing="ij"))
    # Where each new pixel is read. In Pillow's order of operations: another one moves some across a whole number.
    x = cosine * u + sine * v + (cosine * -half + sine * -half + half)
    y = -sine * u + cosine * v + (-sine * -half + cosine * -half + half)
    inside = (x >= 0) & (x < side) & (y >= 0) & (y < side)
    left, top = torch.floor(x - 0.5), torch.floor(y - 0.5)
    along, down = x - 0.5 - left, y - 0.5 - top
    columns = [(left.long() + i).clamp(0, side - 1) for i in (0, 1)]
    corners = [[(top.long() + i).clamp(0, side - 1) * side + column for column in columns] for i in (0, 1)]
    turned = []
    for part in torch.split(images.flatten(1), AT_ONCE):
        upper, lower = (_between(part[:, one].double(), part[:, other].double(), along) for one, other in corners)
        turned.append((_between(upper, lower, down) * inside).to(torch.uint8))
    return torch.cat(turned).view(images.shape)


def _between(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """In Pillow's order of operations: ``torch.lerp`` rounds otherwise, and a cut fraction makes 1/256 of it."""
    return first + (second - first) * share

"""Snow, frost, fog, brightness (Hendrycks & Dietterich 2019, appendix A). Images are (n, 3, H, W) in [0, 1]."""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.resources import files

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from dgbench.data.transforms.corruptions.chance import Chance
from dgbench.data.transforms.corruptions.filters import magnified, motion

TEXTURES = ("frost1", "frost2", "frost2", "frost4", "frost5", "frost6")  # the original's third is its second again


def snow(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Flakes with trails before a whitened image."""
    mean, spread, zoom, threshold, radius, sigma, own = (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    )[severity - 1]
    n, _, height, width = x.shape
    flakes = magnified(mean + spread * chance.normal(n, 1, height, width), zoom)
    flakes = flakes.where(flakes >= threshold, 0.0).clamp(0, 1)
    flakes = motion(flakes, int(radius), sigma, chance.uniform(-135, -45, n))
    flakes = (torch.round(flakes * 255) / 255)[..., :height, :width]
    gray = (x * x.new_tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    whitened = own * x + (1 - own) * torch.maximum(x, gray * 1.5 + 0.5)
    return whitened + flakes + flakes.flip(2, 3)


def frost(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """A piece of a photograph of ice is added; its place and its photograph are drawn."""
    own, ice = ((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))[severity - 1]
    height, width = x.shape[2:]
    pieces = []
    for _ in range(len(x)):
        texture = _texture(TEXTURES[int(chance.integers(0, len(TEXTURES), 1))], height, width)
        top = int(chance.integers(0, texture.shape[1] - height, 1))
        left = int(chance.integers(0, texture.shape[2] - width, 1))
        pieces.append(texture[:, top : top + height, left : left + width])
    return own * x + ice * torch.stack(pieces)


@lru_cache(maxsize=len(TEXTURES))
def _texture(name: str, height: int, width: int) -> Tensor:
    """(3, h, w) texture in [0, 1], a tenth larger than it is, or than a larger image needs."""
    with (files(__package__) / "frost" / f"{name}.jpg").open("rb") as file:
        pixels = torch.from_numpy(np.array(Image.open(file).convert("RGB"))).permute(2, 0, 1).float()
    scale = 1.1 * max(1.0, height / pixels.shape[1], width / pixels.shape[2])
    size = [math.ceil(side * scale) for side in pixels.shape[1:]]
    grown = F.interpolate(pixels[None], size=size, mode="bicubic", align_corners=False)[0]
    return grown.round().clamp(0, 255) / 255


def fog(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Clouds of all sizes (diamond-square heights) are added and the brightest value is kept."""
    thickness, decay = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))[severity - 1]
    n, _, height, width = x.shape
    clouds = _plasma(n, 1 << (max(height, width) - 1).bit_length(), decay, chance)[:, None, :height, :width]
    peak = x.amax((1, 2, 3), keepdim=True)
    return (x + thickness * clouds) * peak / (peak + thickness)


def _plasma(n: int, side: int, decay: float, chance: Chance) -> Tensor:
    """(n, side, side) heights in [0, 1] that tile; ``side`` is a power of 2.

    Each round halves the grid: the middle of four points is their mean plus noise, first for squares, then for the
    diamonds between them; the noise shrinks by ``decay`` squared from round to round.
    """
    heights = torch.zeros(n, side, side)
    step, wobble = side, 100.0
    while step >= 2:
        half, count = step // 2, side // step

        def mean(total: Tensor, wobble: float = wobble, count: int = count) -> Tensor:
            return total / 4 + wobble * chance.uniform(-wobble, wobble, n, count, count)

        corners = heights[:, ::step, ::step].clone()
        pairs = corners + corners.roll(-1, 1)
        centers = mean(pairs + pairs.roll(-1, 2))
        heights[:, half::step, half::step] = centers
        heights[:, ::step, half::step] = mean(centers + centers.roll(1, 1) + corners + corners.roll(-1, 2))
        heights[:, half::step, ::step] = mean(centers + centers.roll(1, 2) + corners + corners.roll(-1, 1))
        step, wobble = half, wobble / decay
    heights -= heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)


def brightness(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """The value channel of HSV rises, hue and saturation stay; draws nothing."""
    value = x.amax(1, keepdim=True)
    raised = (value + (0.1, 0.2, 0.3, 0.4, 0.5)[severity - 1]).clamp(max=1)
    return torch.where(value > 0, x * (raised / value), raised)

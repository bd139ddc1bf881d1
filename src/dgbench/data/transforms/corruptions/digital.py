"""Contrast, elastic transform, pixelate, JPEG (Hendrycks & Dietterich 2019, appendix A).

Images are (n, 3, H, W) in [0, 1]. Pixelate and JPEG go through Pillow, image by image.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from dgbench.data.transforms.corruptions.chance import Chance
from dgbench.data.transforms.corruptions.filters import gaussian, mirror


def contrast(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Every value moves toward the mean of its channel; draws nothing."""
    mean = x.mean((2, 3), keepdim=True)
    return mean + (0.4, 0.3, 0.2, 0.1, 0.05)[severity - 1] * (x - mean)


def elastic_transform(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Pixels move by a smooth random field, about 1 % of the side in size.

    The parameters are those of the original's maintained form, whose field grows with the image.
    """
    alpha = 250 * (0.05, 0.065, 0.085, 0.1, 0.12)[severity - 1]
    n, _, height, width = x.shape
    reach, sigma = 0.005 * height, (0.01 * height, 0.01 * width)
    across, down = (
        alpha * gaussian(chance.uniform(-reach, reach, n, 1, height, width), sigma, 3.0, mirror)[:, 0] for _ in range(2)
    )
    columns = (2 * (torch.arange(width) + across) + 1) / width - 1
    rows = (2 * (torch.arange(height)[:, None] + down) + 1) / height - 1
    grid = torch.stack([columns, rows], -1)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def pixelate(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Shrunk to a share of the size and enlarged without interpolation; draws nothing."""
    share = (0.6, 0.5, 0.4, 0.3, 0.25)[severity - 1]

    def through(image: Image.Image) -> Image.Image:
        small = image.resize((int(image.width * share), int(image.height * share)), Image.Resampling.BOX)
        return small.resize(image.size, Image.Resampling.NEAREST)

    return _one_by_one(x, through)


def jpeg_compression(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Saved as JPEG of low quality and read again; draws nothing."""
    quality = (25, 18, 15, 10, 7)[severity - 1]

    def through(image: Image.Image) -> Image.Image:
        buffer = BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _one_by_one(x, through)


def _one_by_one(x: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    pixels = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    changed = np.stack([np.asarray(change(Image.fromarray(image))) for image in pixels])
    return torch.from_numpy(changed).permute(0, 3, 1, 2) / 255

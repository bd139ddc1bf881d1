"""What environments do to images: painters of spurious features, and rotation.

A painter takes (n, C, H, W) images in [0, 1] and (n,) feature values in 0..K-1 and returns (n, C',
H, W). The next spurious-feature dataset needs only one more painter.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def two_channel_color(images: Tensor, feature: Tensor) -> Tensor:
    """Color digits as DomainBed does: (n, 1, H, W) -> (n, 2, H, W), in channel ``feature``.

    The other channel is zero (Arjovsky et al., 2019; Gulrajani and Lopez-Paz, 2021).
    """
    channels = torch.arange(2, device=images.device)
    return images * (feature[:, None] == channels)[:, :, None, None]


def tint(images: Tensor, feature: Tensor) -> Tensor:
    """Put pictures under colored light: (n, 3, H, W) -> the same shape.

    It is greenish for feature 0, bluish for feature 1.

    One channel stays, the other two are halved, which leaves shapes and shading. C-Cats&Dogs (Hwang
    et al., 2024, section 4.2.1) says only "color"; the two tints are those of its source (Nagarajan
    et al., 2020), the strength is ours. Only channels' weights differ between the tints, so neither
    is easier to see.
    """
    lights = [[0.5, 1.0, 0.5], [0.5, 0.5, 1.0]]
    light = torch.tensor(lights, device=images.device, dtype=images.dtype)
    return images * light[feature][:, :, None, None]


LINE_COLORS = (
    (1.0, 0.0, 0.0),  # red
    (0.0, 1.0, 0.0),  # green
    (0.0, 0.0, 1.0),  # blue
    (1.0, 1.0, 0.0),  # yellow
    (1.0, 0.0, 1.0),  # magenta
    (0.0, 1.0, 1.0),  # cyan
    (1.0, 0.5, 0.0),  # orange
    (0.5, 0.0, 1.0),  # violet
    (1.0, 1.0, 1.0),  # white
    (0.0, 0.0, 0.0),  # black
)


def colored_line(images: Tensor, feature: Tensor) -> Tensor:
    """Draw a vertical line through the middle in one of ten colors: (n, 3, H, W) -> the same shape.

    The feature is in 0..9.

    The line is a sixteenth of the width (2 of 32 pixels) and opaque. L-CIFAR10 (Hwang et al., 2024,
    section 4.2.2) says only "colored lines"; place, width and colors are ours.
    """
    colors = torch.tensor(LINE_COLORS, device=images.device, dtype=images.dtype)
    width = images.shape[-1]
    thick = max(1, width // 16)
    left = (width - thick) // 2
    columns = torch.arange(width, device=images.device)
    line = (columns >= left) & (columns < left + thick)
    return torch.where(line, colors[feature][:, :, None, None], images)


def rotated(images: Tensor, angle: float) -> Tensor:
    """Rotate pictures counter-clockwise with Pillow, as DomainBed does.

    It is bilinear, with 0 outside the rotated picture.

    Args:
        images: (n, 1, S, S) uint8.
        angle: in degrees.

    Returns:
        (n, 1, S, S) uint8.
    """
    pictures = map(Image.fromarray, images[:, 0].numpy())
    turned = [np.asarray(picture.rotate(angle, Image.Resampling.BILINEAR)) for picture in pictures]
    return torch.from_numpy(np.stack(turned))[:, None]

"""Painters of spurious features: one function each, (images, feature) -> what the network sees.

A painter takes (n, C, H, W) images in [0, 1] and (n,) feature values in 0..K-1 and returns (n, C', H, W).
The next spurious-feature dataset needs only one more of them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def two_channel_color(images: Tensor, feature: Tensor) -> Tensor:
    """Colored digits as DomainBed makes them: (n, 1, H, W) -> (n, 2, H, W), the digit in channel ``feature``.

    The other channel is zero (Arjovsky et al., 2019; Gulrajani and Lopez-Paz, 2021).
    """
    channels = torch.arange(2, device=images.device)
    return images * (feature[:, None] == channels)[:, :, None, None]

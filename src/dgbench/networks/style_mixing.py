"""The style-mixing step that a featurizer runs after some of its stages."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.requests import StyleMix

EPSILON = 1e-6


def mix_styles(x: Tensor, mix: StyleMix) -> Tensor:
    """Give each image a mixture of its own and its partner's feature statistics (Zhou et al., 2021, section 3).

    With mean and standard deviation sqrt(unbiased variance + 1e-6) over the pixels of each channel, both constants:
    the normalized features times (w s + (1-w) s_partner) plus (w m + (1-w) m_partner).

    Args:
        x: (n, C, H, W) features.
        mix: how; where it is not active, ``x`` comes back unchanged.

    Returns:
        (n, C, H, W) features.
    """
    constant = x.detach()
    mean = constant.mean((2, 3), keepdim=True)
    std = (constant.var((2, 3), keepdim=True) + EPSILON).sqrt()
    w = mix.weight[:, None, None, None].to(x.dtype)
    mixed_std = w * std + (1 - w) * std[mix.partner]
    mixed_mean = w * mean + (1 - w) * mean[mix.partner]
    return torch.where(mix.active, (x - mean) / std * mixed_std + mixed_mean, x)

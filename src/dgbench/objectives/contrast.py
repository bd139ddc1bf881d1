"""Losses that draw features of one class together."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

TEMPERATURE = 0.07
EPSILON = 1e-5


def supervised_contrast(z: Tensor, y: Tensor, env: Tensor, within: float = 0.5) -> Tensor:
    """Supervised contrastive loss of (N, m) features (Khosla et al., 2020), as ADRMX computes it.

    With u = z / |z|, e_ij = w_ij exp(u_i . u_j / 0.07) and p_ij = e_ij / (sum_{k != i} e_ik + 1e-5), a row's loss is
    the mean of -log(p_ij + 1e-5) over the other rows j of its class. Rows without any count as 0, and the sum is
    divided by the number of the rest plus 1.

    Args:
        z, y, env: (N, ...), of each row.
        within: w_ij of rows of one environment; 1 - ``within`` of rows of two.
    """
    u, row = F.normalize(z, dim=1), torch.arange(len(y), device=z.device)
    other = row[:, None] != row
    weight = torch.where(env[:, None] == env, within, 1 - within) * other
    e = weight * (u @ u.T / TEMPERATURE).exp()
    log_share = (e / (e.sum(1, keepdim=True) + EPSILON) + EPSILON).log()
    positive = (other & (y[:, None] == y)).to(z.dtype)
    count = positive.sum(1)
    each = -(positive * log_share).sum(1) / count.clamp(min=1)
    return each.sum() / ((count > 0).sum() + 1)

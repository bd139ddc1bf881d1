"""The per-environment risks that most objectives start from."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.tensors import EnvBatch


def environment_risks(logits: Tensor, batch: EnvBatch) -> Tensor:
    """(N, K) logits -> (E,) mean cross entropy within each environment, R_e."""
    return batch.mean_per_env(F.cross_entropy(logits, batch.y, reduction="none"))


def invariance_penalty(logits: Tensor, batch: EnvBatch) -> Tensor:
    """(N, K) logits -> IRMv1's penalty, mean_e G_e(even rows) * G_e(odd rows).

    G is the derivative of the risk with respect to a factor on the logits, taken at 1: the mean of
    <softmax(l) - onehot(y), l>. The product of the halves is an unbiased estimate of the squared gradient and may be
    negative.
    """
    # <onehot(y), l> by gathering: one_hot cannot be mapped by vmap
    slopes = (logits.softmax(1) * logits).sum(1) - logits.gather(1, batch.y[:, None]).squeeze(1)
    halves = [(part[0::2].mean(), part[1::2].mean()) for part in batch.split(slopes)]
    return torch.stack([even * odd for even, odd in halves]).mean()

"""The per-environment risks that most objectives start from."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.types import EnvBatch, Networks


def environment_risks(logits: Tensor, batch: EnvBatch) -> Tensor:
    """(N, K) logits -> (E,) mean cross entropy within each environment, R_e."""
    return batch.mean_per_env(F.cross_entropy(logits, batch.y, reduction="none"))


def separate_logits(nets: Networks, batch: EnvBatch) -> Tensor:
    """(N, K) logits with one forward pass per environment.

    Equal to one pass over all rows unless a network looks at the whole minibatch (unfrozen BatchNorm).
    """
    return torch.cat([nets.logits(x) for x in batch.split(batch.x)])

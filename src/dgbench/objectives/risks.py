"""The per-environment risks that most objectives start from."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from dgbench.tensors import EnvBatch


def environment_risks(logits: Tensor, batch: EnvBatch) -> Tensor:
    """(N, K) logits -> (E,) mean cross entropy within each environment, R_e."""
    return batch.mean_per_env(F.cross_entropy(logits, batch.y, reduction="none"))

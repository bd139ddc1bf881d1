"""The per-environment risks that most objectives start from."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.types import EnvBatch, Networks


def environment_risks(logits: Tensor, batch: EnvBatch) -> Tensor:
    """(N, K) logits -> (E,) mean cross entropy within each environment, R_e."""
    return batch.mean_per_env(F.cross_entropy(logits, batch.y, reduction="none"))


def separate_features(nets: Networks, batch: EnvBatch) -> Tensor:
    """(N, m) features as of one forward pass per environment.

    They are those of one pass over all rows, which is what is made, unless unfrozen BatchNorm looks at the whole
    minibatch.
    """
    if nets.mixes_rows("featurizer"):
        return torch.cat([nets.featurizer(x) for x in batch.split(batch.x)])
    return nets.featurizer(batch.x)


def separate_logits(nets: Networks, batch: EnvBatch) -> Tensor:
    """(N, K) logits as of one forward pass per environment; see :func:`separate_features`."""
    return nets.classifier(separate_features(nets, batch))

"""How many members fit into memory at once."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from dgbench.cli.stacking import Group

ACTIVATION_COPIES = 6  # forward and backward keep about this many copies of a member's images and features
WEIGHT_COPIES = 5  # weights, gradients, Adam's two moments, and one more while an update is made


def members_that_train(group: Group, memory_gb: float | None) -> int:
    """Members of a stack whose weights, images and activations fit; at least 1.

    Args:
        group: members of one shape.
        memory_gb: memory that they may take, gigabytes; None is half of what the device has.
    """
    study, member = group.members[0]
    module = group.modules[0]
    n_images = study.trainer.batch_size * len(member.fold.training)
    weights = sum((WEIGHT_COPIES if p.requires_grad else 1) * p.numel() for p in module.networks.parameters())
    images = n_images * (2 * math.prod(study.environments.image) + ACTIVATION_COPIES * sum(module.activations))
    return max(1, int(_allowed(memory_gb) // (_bytes(group) * (weights + images))))


def _bytes(group: Group) -> int:
    return 8 if group.members[0][0].trainer.precision == "64-true" else 4


def _allowed(memory_gb: float | None) -> float:
    return memory_gb * 1e9 if memory_gb else _available() / 2


def _available() -> float:
    """Bytes of the training device."""
    if torch.cuda.is_available():
        return float(torch.cuda.mem_get_info()[0])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

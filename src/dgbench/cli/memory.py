"""How many members fit into memory at once."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import torch

from dgbench.algorithms.base import Algorithm

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
    images = n_images * (2 * math.prod(study.environments.image) + ACTIVATION_COPIES * sum(_activations(module)))
    return max(1, int(_allowed(memory_gb) // (_bytes(group) * (weights + images))))


def members_that_score(group: Group, memory_gb: float | None) -> int:
    """Members of a stack that can score one batch at once; a forward pass keeps one layer's input and output."""
    study, _ = group.members[0]
    layers = [math.prod(study.environments.image), *_activations(group.modules[0])]
    widest = max(a + b for a, b in zip(layers, [*layers[1:], 0], strict=True))
    return max(1, int(_allowed(memory_gb) // (_bytes(group) * study.trainer.eval_batch_size * widest)))


def _bytes(group: Group) -> int:
    return 8 if group.members[0][0].trainer.precision == "64-true" else 4


def _allowed(memory_gb: float | None) -> float:
    return memory_gb * 1e9 if memory_gb else _available() / 2


def _available() -> float:
    """Bytes of the training device."""
    if torch.cuda.is_available():
        return float(torch.cuda.mem_get_info()[0])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _activations(module: Algorithm) -> list[int]:
    """Numbers that each layer of the featurizer puts out for one image."""
    counted: list[int] = []
    featurizer = module.networks["featurizer"]
    leaves = [layer for layer in featurizer.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(lambda _, __, out: counted.append(out.numel())) for layer in leaves]
    channels, *sides = module.sizes.image
    mode = module.networks.training
    module.networks.eval()  # one image has no batch statistics, and must leave none
    with torch.no_grad():
        featurizer(torch.zeros(1, channels + module.extra_channels, *sides, dtype=next(featurizer.parameters()).dtype))
    module.networks.train(mode)
    for hook in hooks:
        hook.remove()
    return counted

"""How many numbers the layers of a network put out for one image, and how many images are therefore scored at once."""

from __future__ import annotations

import torch
from torch import nn

from dgbench.containers import example_of

CPU_BYTES = 32 * 2**20  # of one layer: what is larger is new memory each time, which the kernel has to clear
DEVICE_BYTES = 512 * 2**20


def activations(featurizer: nn.Module, image: tuple[int, ...]) -> list[int]:
    """Numbers that each layer puts out for one image of shape ``image``, in order of computation."""
    counted: list[int] = []
    leaves = [layer for layer in featurizer.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(lambda _, __, out: counted.append(out.numel())) for layer in leaves]
    training = [layer for layer in featurizer.modules() if layer.training]
    featurizer.eval()  # one image has no batch statistics, and must leave none
    like = example_of(featurizer)
    with torch.no_grad():
        featurizer(torch.zeros(1, *image, dtype=like.dtype, device=like.device))
    for layer in training:
        layer.training = True
    for hook in hooks:
        hook.remove()
    return counted


def images_at_once(layers: list[int], device: torch.device) -> int:
    """Images that are scored at once, given the numbers of each layer's output for one; at least 1."""
    bound = CPU_BYTES if device.type == "cpu" else DEVICE_BYTES
    return max(1, bound // (4 * max(layers, default=1)))

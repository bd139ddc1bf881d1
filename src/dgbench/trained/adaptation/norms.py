"""Normalization layers of any network: BatchNorm's statistics, and scales and shifts that learn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def batch_norms(network: nn.Module) -> list[_BatchNorm]:
    """List the BatchNorm layers of a network, frozen ones too."""
    return [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]


def use_batch_statistics(network: nn.Module) -> None:
    """Let every BatchNorm normalize with mean and biased variance of the batch, in any mode."""
    for layer in batch_norms(network):
        statistics: Any = layer  # torch declares tensors, and takes None as "of the batch"
        statistics.running_mean = None
        statistics.running_var = None


def norm_layers(network: nn.Module, skipped: Sequence[str] = ()) -> list[nn.Module]:
    """List the layers of normalization that have scales or shifts, in the network's order.

    Args:
        network: any; torch's and timm's layers share no class, so they are told by its name.
        skipped: dotted parts of names, such as ``layer4`` or ``blocks.9``, whose layers are left
            out.
    """
    return [layer for name, layer in _norms(network) if not _is_below(name, skipped)]


def learn_norms(network: nn.Module, skipped: Sequence[str] = ()) -> list[nn.Parameter]:
    """Let only scales and shifts of normalization layers have gradients, and return them."""
    network.requires_grad_(False)
    parameters = []
    for layer in norm_layers(network, skipped):
        for parameter in layer.parameters(recurse=False):
            parameter.requires_grad_(True)
            parameters.append(parameter)
    return parameters


def _norms(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, layer in network.named_modules():
        if "norm" in type(layer).__name__.lower() and list(layer.parameters(recurse=False)):
            yield name, layer


def _is_below(name: str, skipped: Sequence[str]) -> bool:
    """Return whether a dotted name lies below a part that is skipped.

    The part is one of the network itself, not of one of its numbered blocks: ``norm`` is the last
    layer of a ViT, and not ``stages.0.norm``.
    """
    for part in skipped:
        before, matched, _ = f".{name}.".partition(f".{part}.")
        in_a_block = any(piece.isdecimal() for piece in before.split("."))
        if matched and not in_a_block:
            return True
    return False

"""Renewing the running statistics of BatchNorm, for weights that no forward pass in training has seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@torch.no_grad()
def renew_statistics(model: nn.Module, forward: Callable[[Tensor], object], images: Iterable[Tensor]) -> None:
    """Replace running means and variances by the average of what the batches show.

    A frozen layer (one that ``model.train()`` leaves in evaluation mode) keeps its statistics; if all are, nothing
    is computed.

    Args:
        model: the networks; left in the mode in which they came.
        forward: what is computed on each batch.
        images: batches, (n, C, H, W) each.
    """
    was_training = model.training
    model.train()
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.training and m.track_running_stats]
    momenta = [layer.momentum for layer in layers]
    if layers:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # cumulative average
        for x in images:
            forward(x)
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
    model.train(was_training)

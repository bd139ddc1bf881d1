"""Chance inside the layers of a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd


@contextmanager
def seeded_dropout(networks: nn.Module, device: torch.device, seed: int) -> Iterator[None]:
    """Inside, dropout layers draw from ``seed`` alone; they know torch's global generator only, which is put back."""
    if not any(isinstance(layer, _DropoutNd) and layer.p > 0 for layer in networks.modules()):
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield

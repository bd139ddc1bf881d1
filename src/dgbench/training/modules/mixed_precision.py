"""Half precision under ``trainer.precision=bf16-mixed`` and ``16-mixed``: of networks, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dgbench.containers import AnyNetworks


@contextmanager
def half_for_networks(networks: AnyNetworks, device: torch.device) -> Iterator[AnyNetworks]:
    """Where autocast is on, as in Lightning's mixed precision, it holds for the networks alone.

    Penalties are differences of nearly equal numbers, which half precision rounds away: the distances of MMD would be
    noise, the quantiles of RSC would be shared by many features. So everything that an algorithm computes of what its
    networks put out is float32, and so is what is differentiated inside the context, but for the networks.

    Yields:
        the networks as they are to be called.
    """
    kind = device.type
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        yield networks
        return
    dtype = torch.get_autocast_dtype(kind)
    with torch.autocast(kind, enabled=False):
        yield networks.in_half_precision(dtype)

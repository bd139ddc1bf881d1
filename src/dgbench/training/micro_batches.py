"""One minibatch in several micro-batches: gradient accumulation and distributed runs.

Each micro-batch holds an equal part of the rows of every environment. The objective is evaluated on each of them, with
random inputs of its own, and losses, gradients and new states are averaged over them. For an objective that is a mean
over rows (ERM) that is the objective of the whole minibatch; any other method becomes one that works with smaller
minibatches, and BatchNorm sees the rows of a micro-batch. Each process of a distributed run holds an equal part of the
minibatch and may cut it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from dgbench.batches import EnvBatch, Tensors


def micro_batches(batch: EnvBatch, n: int) -> Sequence[EnvBatch]:
    """Cut a minibatch into ``n`` with equal parts of the rows of every environment, in order."""
    if n == 1:
        return [batch]
    sizes = tuple(size // n for size in batch.sizes)

    def cut(values: Tensor) -> list[Tensor]:
        parts = [part.chunk(n) for part in batch.split(values)]
        return [torch.cat([part[i] for part in parts]) for i in range(n)]

    indices = [None] * n if batch.index is None else cut(batch.index)
    return [EnvBatch(x, y, sizes, index) for x, y, index in zip(cut(batch.x), cut(batch.y), indices, strict=True)]


def mean_over_processes(tensors: Iterable[Tensor]) -> None:
    """Average tensors in place over the processes of a distributed run, in one message per type."""
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.dtype, []).append(tensor)
    for group in by_type.values():
        message = torch.cat([tensor.reshape(-1) for tensor in group])
        torch.distributed.all_reduce(message)
        message /= torch.distributed.get_world_size()
        for tensor, mean in zip(group, torch.split(message, [t.numel() for t in group]), strict=True):
            tensor.copy_(mean.view_as(tensor))


def averaged(states: Sequence[Tensors]) -> Tensors:
    """The mean over micro-batches of what an objective remembers."""
    if len(states) == 1:
        return states[0]
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


def moving_statistics(networks: nn.Module) -> list[Tensor]:
    """The running statistics that a step may have changed, e.g. of a BatchNorm that is not frozen."""
    training = [module for module in networks.modules() if module.training]
    return [b for module in training for b in module.buffers(recurse=False) if b.is_floating_point()]

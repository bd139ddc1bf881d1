"""What a training or validation step may be given, brought to one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgbench.batches import EnvBatch, EvalBatch
from dgbench.errors import ConfigError


def minibatches(batch: Any, n_envs: int) -> Sequence[EnvBatch]:
    """One minibatch per optimizer step.

    Args:
        batch: what a loader gives: a sequence of :class:`EnvBatch`, one for each of several steps; or one step as an
            :class:`EnvBatch`, a sequence with (x, y) of each environment, a mapping of their names to (x, y), or a
            single (x, y).
        n_envs: environments that the algorithm was made for.

    Raises:
        ConfigError: minibatches of another number of environments.
    """
    if isinstance(batch, Sequence) and batch and isinstance(batch[0], EnvBatch):
        return batch
    if isinstance(batch, EnvBatch):
        return [batch]
    pairs = list(batch.values()) if isinstance(batch, Mapping) else list(batch)
    if len(pairs) == 2 and isinstance(pairs[0], Tensor):
        pairs = [pairs]
    if len(pairs) != n_envs:
        raise ConfigError(f"a step has minibatches of {len(pairs)} environment(s), the algorithm was made for {n_envs}")
    xs, ys = ([pair[i] for pair in pairs] for i in (0, 1))
    return [EnvBatch(torch.cat(xs), torch.cat(ys), tuple(len(y) for y in ys))]


def eval_batch(batch: Any, index: int) -> EvalBatch:
    """An :class:`EvalBatch` itself, or (x, y) as one."""
    if isinstance(batch, EvalBatch):
        return batch
    x, y = batch
    return EvalBatch(x, y, "validation", index)

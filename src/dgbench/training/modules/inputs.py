"""Bring what a training or validation step is given to one form, and draw the random inputs of a run.

Random inputs are functions of the run's seed, the step and the minibatch alone, so that resuming is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.batches import EnvBatch, EvalBatch, Tensors
from dgbench.errors import ConfigError
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.random_inputs import draw
from dgbench.seeding import derive

BLOCK = 64  # steps whose random inputs come from one generator; the draw of a step depends on nothing else
LARGE, SHORT_BLOCK = 2**19, 4  # numbers of one step from which on a block is shorter, so that few are kept


class Draws:
    """Draws what an algorithm declares.

    Args:
        algorithm: that declares it.
        seed: base seed of the run.
    """

    def __init__(self, algorithm: Algorithm, seed: int) -> None:
        self.algorithm, self.seed = algorithm, derive(seed, "noise")
        self._lengths: dict[tuple[int, ...], int] = {}  # steps of a block, by minibatch sizes
        self._known: dict[int, tuple[tuple[object, ...], Tensors]] = {}  # of each micro-batch: the block drawn last

    def at(self, step: int, sizes: tuple[int, ...], like: Tensor, part: int = 0) -> Tensors:
        """The random inputs of one step.

        Args:
            step: counts from 0.
            sizes: of the minibatches.
            like: floating-point tensor whose type and device they get.
            part: number of the micro-batch.
        """
        length = self._length(sizes)
        block, offset = divmod(step, length)
        key = (block, sizes, like.device, like.dtype)
        kept = self._known.get(part)
        if kept is None or kept[0] != key:
            rng = np.random.default_rng([self.seed, block, *([part] if part else [])])
            drawn = draw(self.algorithm.random_inputs(sizes), rng, length)
            kept = self._known[part] = (key, as_tensors(drawn, like))
        return {name: values[offset] for name, values in kept[1].items()}

    def _length(self, sizes: tuple[int, ...]) -> int:
        """Steps of a block."""
        if sizes not in self._lengths:
            numbers = sum(math.prod(each.shape) for each in self.algorithm.random_inputs(sizes).values())
            self._lengths[sizes] = BLOCK if numbers <= LARGE else SHORT_BLOCK
        return self._lengths[sizes]

    def for_prediction(self, n: int, like: Tensor, *purpose: str | int) -> Tensors:
        """The random inputs of a prediction on ``n`` images; ``purpose`` names the batch of images."""
        rng = np.random.default_rng(derive(self.seed, "score", *purpose))
        drawn = draw(self.algorithm.prediction_inputs(n), rng, 1)
        return {name: values[0] for name, values in as_tensors(drawn, like).items()}


def as_tensors(arrays: Mapping[str, np.ndarray], like: Tensor) -> dict[str, Tensor]:
    """Arrays as tensors on the device of ``like``, numbers with a fraction in its type."""
    return {
        name: torch.as_tensor(array, dtype=like.dtype if array.dtype.kind == "f" else None, device=like.device)
        for name, array in arrays.items()
    }


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

"""Averages of a model's weights over its training, around any algorithm; EoA's moving average.

A *rule* is pure logic over named tensors; :class:`dgbench.callbacks.averaging.Averaging` says what one must offer and
feeds it. Steps are optimizer updates done, so the first update is step 1. SWAD's rule stands in ``swad.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dgbench.batches import Tensors


def snapshot(tensors: Tensors) -> dict[str, Tensor]:
    """Copies that later updates do not touch."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@dataclass
class RunningMean:
    """Weighted mean of named tensors."""

    count: int = 0  #: sum of the weights
    mean: dict[str, Tensor] = field(default_factory=dict)

    def add(self, values: Tensors, weight: int = 1) -> None:
        """mean <- (count mean + weight values) / (count + weight); the first one is copied."""
        self.count += weight
        if self.count == weight:
            self.mean = snapshot(values)
        else:
            torch._foreach_lerp_(list(self.mean.values()), [values[k].detach() for k in self.mean], weight / self.count)


class MovingAverage:
    """The simple moving average of Ensemble of Averages (Arpit et al., 2022).

    - ``flavor=state``: parameters and floating-point buffers; after step k >= start - 1 the mean of steps
      start - 1, ..., k (the authors' code).
    - ``flavor=parameters``: parameters; buffers stay as they were before training; after step k >= start the mean of
      steps start, start, start + 1, ..., k, the first counted twice (code of NICO++ and of Yu et al., 2024).

    Before that the live weights count.

    Args:
        start: step at which averaging begins.
        flavor: see above.
    """

    final_only = False  #: every evaluation scores :meth:`result`
    finished = False  #: never ends training
    batchnorm_batches = 0  #: running statistics are what they are

    _FLAVORS: Mapping[str, tuple[int, int]] = {"state": (-1, 1), "parameters": (0, 2)}  # first less start, its weight

    def __init__(self, start: int = 100, flavor: str = "state") -> None:
        offset, self._first_weight = self._FLAVORS[flavor]
        self._first, self._whole_state = start + offset, flavor == "state"
        self._mean, self._initial = RunningMean(), dict[str, Tensor]()

    def begin(self, buffers: Tensors) -> None:
        """Training starts from its beginning."""
        self._initial = {} if self._whole_state else snapshot(buffers)

    def update(self, step: int, params: Tensors, buffers: Tensors) -> None:
        """An optimizer step was made."""
        if step >= self._first:
            weight = 1 if self._mean.count else self._first_weight
            self._mean.add({**params, **buffers} if self._whole_state else params, weight)

    def evaluated(self, step: int, loss: float, buffers: Tensors) -> None:
        """An evaluation was made; it changes nothing."""

    def result(self) -> Tensors:
        """The tensors to predict with; those left out are the live ones."""
        return {**self._initial, **self._mean.mean}

    def state_dict(self) -> dict[str, Any]:
        return {"mean": vars(self._mean), "initial": self._initial}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._mean, self._initial = RunningMean(**state["mean"]), state["initial"]

"""Renewing running statistics."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dgbench.containers import renew_statistics

BATCHES = [torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [8.0]])]


class _Frozen(nn.BatchNorm1d):
    def train(self, mode: bool = True) -> _Frozen:
        super().train(False)
        return self


def test_statistics_are_the_average_over_batches() -> None:
    """Means 1 and 6 average to 3.5, unbiased variances 2 and 8 to 5; what was there before is
    forgotten.
    """
    model = nn.Sequential(nn.BatchNorm1d(1))
    layer = model[0]
    assert isinstance(layer, nn.BatchNorm1d)
    layer.running_mean = torch.tensor([100.0])
    model.eval()
    renew_statistics(model, model, BATCHES)
    assert (float(layer.running_mean), float(layer.running_var)) == (3.5, 5.0)  # type: ignore[arg-type]
    assert layer.momentum == 0.1
    assert not model.training


def test_frozen_statistics_stay_and_nothing_is_computed() -> None:
    model = nn.Sequential(_Frozen(1))

    def forward(x: Tensor) -> Tensor:
        raise AssertionError("no forward pass is needed")

    renew_statistics(model, forward, BATCHES)
    assert float(model[0].running_mean) == 0.0  # type: ignore[arg-type]
    assert model.training

"""Specifications become the networks that they describe."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from dgbench.network_specs import EmbeddingSpec, LeakyMLPSpec, LinearSpec, MLPSpec, ProjectionSpec
from dgbench.networks.build import build_head


def test_linear() -> None:
    layer = build_head(LinearSpec(5, 3))
    assert isinstance(layer, nn.Linear)
    assert layer.weight.shape == (3, 5)
    assert layer.bias.abs().max() <= 1 / math.sqrt(5)


def test_xavier_linear() -> None:
    layer = build_head(LinearSpec(50, 30, xavier_gain=0.1))
    assert isinstance(layer, nn.Linear)
    bound = 0.1 * math.sqrt(6 / 80)
    assert 0.9 * bound < layer.weight.abs().max() <= bound
    assert not layer.bias.any()


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_mlp_has_depth_linear_layers(depth: int) -> None:
    network = build_head(MLPSpec(5, 3, width=8, depth=depth, dropout=0.5))
    assert isinstance(network, nn.Sequential)
    kinds = [type(layer).__name__ for layer in network]
    assert kinds == ["Linear", "Dropout", "ReLU"] * (depth - 1) + ["Linear"]
    assert network.eval()(torch.zeros(2, 5)).shape == (2, 3)


def test_leaky_mlp_has_one_layer_more_than_hidden_ones() -> None:
    network = build_head(LeakyMLPSpec(5, 1, width=8, hidden=2))
    assert isinstance(network, nn.Sequential)
    assert [type(layer).__name__ for layer in network] == ["Linear", "LeakyReLU"] * 3 + ["Linear"]
    assert network(torch.zeros(2, 5)).shape == (2, 1)


def test_projection_ends_in_batch_norm() -> None:
    network = build_head(ProjectionSpec(5, width=10))
    assert isinstance(network, nn.Sequential)
    assert [type(layer).__name__ for layer in network] == ["Linear", "BatchNorm1d", "ReLU"] * 2 + [
        "Linear", "BatchNorm1d",
    ]  # fmt: skip
    projected = network(torch.randn(20, 5, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(projected.mean(0), torch.zeros(5), rtol=0, atol=1e-5)


def test_embedding_is_standard_normal() -> None:
    weight = build_head(EmbeddingSpec(100, 50)).weight
    assert isinstance(weight, torch.Tensor)
    assert weight.shape == (100, 50)
    assert float(weight.detach().std()) == pytest.approx(1, abs=0.05)


def test_unknown_specification() -> None:
    with pytest.raises(TypeError, match="register"):
        build_head("linear")  # type: ignore[arg-type]

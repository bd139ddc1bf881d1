"""Featurizers layer by layer against their published description, and initial weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dgbench.containers import Networks
from dgbench.errors import ConfigError
from dgbench.network_specs import LinearSpec, Sizes
from dgbench.networks.build import build_networks
from dgbench.networks.small import MNISTCNN, MLPFeaturizer

Featurizer = Callable[[tuple[int, int, int]], nn.Module]


def shapes(module: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(p.shape)) for name, p in module.named_parameters()]


def test_mlp_parameters() -> None:
    """Flattened 2 x 14 x 14 = 392 inputs, two layers of 390: 392 * 390 + 390 + 390 * 390 + 390 =
    305,760.
    """
    mlp = MLPFeaturizer((2, 14, 14))
    assert mlp.n_features == 390
    assert [shape for _, shape in shapes(mlp)] == [(390, 392), (390,), (390, 390), (390,)]
    assert sum(p.numel() for p in mlp.parameters()) == 305_760


def test_mlp_initial_weights() -> None:
    """Xavier-uniform with gain sqrt 2: bound sqrt(2) * sqrt(6 / (n_in + n_out)), standard deviation
    bound / sqrt 3.
    """
    torch.manual_seed(0)
    linear = [layer for layer in MLPFeaturizer((2, 14, 14)).layers if isinstance(layer, nn.Linear)]
    for layer, n_in in zip(linear, (392, 390), strict=True):
        bound = math.sqrt(2) * math.sqrt(6 / (n_in + 390))
        weight = layer.weight.detach()
        assert 0.999 * bound < float(weight.abs().max()) <= bound
        assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.01)
        assert not layer.bias.any()


def test_mlp_is_flatten_linear_relu_linear_relu() -> None:
    mlp = MLPFeaturizer((1, 2, 3), width=5).double()
    x = torch.randn(4, 1, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w1, b1, w2, b2 = mlp.parameters()
    expected = F.relu(F.relu(x.reshape(4, 6) @ w1.T + b1) @ w2.T + b2)
    assert torch.allclose(mlp(x), expected, atol=1e-14)
    assert (mlp(x) == 0).any(), "the last layer has its ReLU"


def test_cnn_parameters() -> None:
    """conv 3 x 3: 2 -> 64, 64 -> 128, 128 -> 128, 128 -> 128, then the four norms (spec, section
    1.1).

    18 * 64 + 64 + 576 * 128 + 128 + 2 * (1152 * 128 + 128) + 2 * (64 + 3 * 128) = 371,136."""
    cnn = MNISTCNN((2, 28, 28))
    assert cnn.n_features == 128
    assert [shape for _, shape in shapes(cnn)] == [
        (64, 2, 3, 3), (64,), (128, 64, 3, 3), (128,), (128, 128, 3, 3), (128,), (128, 128, 3, 3),
        (128,),
        (64,), (64,), (128,), (128,), (128,), (128,), (128,), (128,),
    ]  # fmt: skip
    assert sum(p.numel() for p in cnn.parameters()) == 371_136
    assert [norm.num_groups for norm in cnn.norms] == [8] * 4  # type: ignore[union-attr]
    assert [norm.eps for norm in cnn.norms] == [1e-5] * 4  # type: ignore[union-attr]


def test_cnn_initial_weights() -> None:
    """The framework's default: uniform within 1 / sqrt(fan_in), fan_in = 9 * channels in; norms
    start as identity.
    """
    torch.manual_seed(0)
    cnn = MNISTCNN((2, 28, 28))
    for conv, channels in zip(cnn.convs, (2, 64, 128, 128), strict=True):
        bound = 1 / math.sqrt(9 * channels)
        weight, bias = (p.detach() for p in conv.parameters())
        assert 0.98 * bound < float(weight.abs().max()) <= bound * (1 + 1e-6)
        assert float(bias.abs().max()) <= bound
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in cnn.norms)  # type: ignore[union-attr]


def test_cnn_is_conv_relu_norm_with_stride_2_in_the_second_stage() -> None:
    """The order conv, ReLU, GroupNorm and the average over the 4 x 4 map that stride 2 leaves of 8
    x 8.
    """
    cnn = MNISTCNN((2, 8, 8), width=8, min_size=8).double()
    draw = torch.Generator().manual_seed(0)
    for p in cnn.parameters():
        p.data = torch.randn(p.shape, dtype=torch.float64, generator=draw)
    x = torch.randn(3, 2, 8, 8, dtype=torch.float64, generator=draw)
    z, p = x, list(cnn.parameters())
    for stage, stride in enumerate((1, 2, 1, 1)):
        z = F.relu(F.conv2d(z, p[2 * stage], p[2 * stage + 1], stride=stride, padding=1))
        groups = z.reshape(3, 8, -1)
        mean, var = groups.mean(2, keepdim=True), groups.var(2, correction=0, keepdim=True)
        z = ((groups - mean) / (var + 1e-5).sqrt()).reshape(z.shape)
        z = z * p[8 + 2 * stage][:, None, None] + p[9 + 2 * stage][:, None, None]
    assert z.shape == (3, 16, 4, 4)
    assert torch.allclose(cnn(x), z.mean((2, 3)), atol=1e-12)


@pytest.mark.parametrize("side", [14, 28])
def test_cnn_scores_as_it_trains(side: int) -> None:
    cnn = MNISTCNN((2, side, side), width=8)
    x = torch.rand(2, 2, side, side)
    assert cnn(x).shape == (2, 16)
    assert torch.equal(cnn.train()(x), cnn.eval()(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MNISTCNN((2, 8, 8)), "14 x 14.* 8 x 8"),
        (lambda: MNISTCNN((2, 28, 13)), "28 x 13"),
        (lambda: MNISTCNN((2, 28, 28), width=20), r"backbone\.width=20"),
        (lambda: MNISTCNN((2, 28, 28), width=0), r"backbone\.width=0 "),
        (lambda: MLPFeaturizer((2, 8, 8), width=0), r"backbone\.width=0 "),
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


# ---- initial weights of a run


def networks(
    seed: int, featurizer: Featurizer = MLPFeaturizer, extra_channels: int = 0
) -> tuple[Networks, Sizes]:
    without_features = Sizes(n_features=0, n_classes=2, n_envs=3, image=(2, 8, 8))
    return build_networks(
        featurizer,
        without_features,
        lambda sizes: {"classifier": LinearSpec(sizes.n_features, 2), "aux": LinearSpec(3, 4)},
        extra_channels,
        seed,
    )


def weights(seed: int, **options: Any) -> list[np.ndarray]:
    return [value.detach().numpy() for value in networks(seed, **options)[0].params().values()]


def test_the_same_seed_gives_the_same_weights() -> None:
    torch.manual_seed(1)
    one = weights(0)
    torch.manual_seed(2)
    assert all(np.array_equal(a, b) for a, b in zip(one, weights(0), strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(one, weights(1), strict=True) if a.any())


def test_the_global_generator_is_untouched() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    networks(0)
    assert torch.equal(before, torch.get_rng_state())


def test_construction_order_and_sizes() -> None:
    built, sizes = networks(
        0, featurizer=lambda image: MLPFeaturizer(image, width=7), extra_channels=1
    )
    assert list(built) == ["featurizer", "classifier", "aux"]
    assert sizes == Sizes(n_features=7, n_classes=2, n_envs=3, image=(2, 8, 8))
    assert next(built.parameters()).shape == (7, 3 * 8 * 8)
    assert built["classifier"].weight.shape == (2, 7)

"""SimCLR-v2's checkpoint, numbered as its authors' code builds the network, computes the same in
timm's ResNet-50.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor

from dgbench.errors import WeightsError
from tools.simclr_v2 import converted

BLOCKS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # filters, blocks, stride of the first


class Built:
    """A network that numbers its layers while it is built: as SimCLR's, in the order of their
    calls.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.variables, self.number = (
            np.random.default_rng(seed),
            dict[str, np.ndarray](),
            0,
        )

    def layer(self, x: Tensor, filters: int, kernel: int, stride: int = 1) -> Tensor:
        """A convolution with fixed padding and its BatchNorm."""
        suffix = f"_{self.number}" if self.number else ""
        self.number += 1
        shape = (kernel, kernel, x.shape[1], filters)
        weights = self.random.normal(0, (2 / np.prod(shape[:3])) ** 0.5, shape).astype("float32")
        norm = {
            name: self.random.uniform(0.5, 1.5, filters).astype("float32")
            for name in ("gamma", "beta", "moving_mean", "moving_variance")
        }
        self.variables[f"base_model/conv2d{suffix}/kernel"] = weights
        self.variables |= {
            f"base_model/batch_normalization{suffix}/{name}": value for name, value in norm.items()
        }
        x = F.conv2d(x, torch.from_numpy(weights).permute(3, 2, 0, 1), None, stride, kernel // 2)
        gamma, beta, mean, variance = (torch.from_numpy(value) for value in norm.values())
        return F.batch_norm(x, mean, variance, gamma, beta, eps=1e-5)

    def features(self, x: Tensor) -> Tensor:
        """(n, 3, H, W) -> (n, 2048)"""
        x = F.max_pool2d(self.layer(x, 64, 7, 2).relu(), 3, 2, 1)
        for filters, blocks, stride in BLOCKS:
            for block in range(blocks):
                step = 1 if block else stride
                shortcut = x if block else self.layer(x, 4 * filters, 1, step)
                y = self.layer(x, filters, 1).relu()
                y = self.layer(y, filters, 3, step).relu()
                x = (self.layer(y, 4 * filters, 1) + shortcut).relu()
        return x.mean((2, 3))


@pytest.fixture(scope="module")
def checkpoint() -> tuple[Mapping[str, np.ndarray], Tensor, Tensor]:
    """Variables of an encoder, images, and its features of them."""
    x, built = (
        torch.from_numpy(np.random.default_rng(1).normal(size=(2, 3, 64, 64)).astype("float32")),
        Built(0),
    )
    features = built.features(x)
    others = {
        "global_step": np.array(5),
        "head_supervised/linear_layer/dense/bias": np.zeros(1000, "float32"),
    }
    return {**built.variables, **others}, x, features


def test_features_are_those_of_the_checkpoint(
    checkpoint: tuple[Mapping[str, np.ndarray], Tensor, Tensor],
) -> None:
    variables, x, features = checkpoint
    network = timm.create_model("resnet50", num_classes=0).eval()
    lacking = network.load_state_dict(converted(variables), strict=False)
    assert (
        all(name.endswith("num_batches_tracked") for name in lacking.missing_keys)
        and not lacking.unexpected_keys
    )
    with torch.no_grad():
        torch.testing.assert_close(
            network(x), features, rtol=1e-3, atol=1e-3 * float(features.abs().max())
        )


def test_other_networks_are_refused(
    checkpoint: tuple[Mapping[str, np.ndarray], Tensor, Tensor],
) -> None:
    variables = checkpoint[0]
    with pytest.raises(WeightsError, match="only r50_1x_sk0"):
        converted({**variables, "base_model/conv2d_53/kernel": np.zeros((1, 1, 2, 2), "float32")})
    with pytest.raises(WeightsError, match="1 of the 265 variables"):
        converted(
            {
                name: value
                for name, value in variables.items()
                if name != "base_model/conv2d_7/kernel"
            }
        )

"""A layer with a low-rank part computes W + alpha / r B A, and a network's own code calls it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.errors import ConfigError
from dgbench.networks.low_rank import (
    add_low_rank,
    check_reached,
    merged_tensors,
    targets,
)
from dgbench.networks.small import MNISTCNN, MLPFeaturizer
from dgbench.networks.timm_networks import TimmFeaturizer
from tests.networks import tiny_timm

RANK, ALPHA = 2, 6.0
VIT, RESNET, EFFICIENTNET = "test_vit2", "test_resnet", "test_efficientnet"


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def _filled(layer: nn.Module) -> nn.Module:
    """The layer with a low-rank part that is not zero."""
    add_low_rank({"": layer}, RANK, ALPHA)
    with torch.no_grad():
        layer.low_rank_up.normal_()  # type: ignore[union-attr, operator]
    return layer


def _body(arch: str) -> TimmFeaturizer:
    torch.manual_seed(0)
    return TimmFeaturizer((3, 32, 32), arch)


def _adapted(arch: str, patterns: list[str] | None = None) -> TimmFeaturizer:
    """A network in float64 whose low-rank parts are not zero."""
    body = _body(arch).double()
    layers = targets(body, patterns)
    add_low_rank(layers, RANK, ALPHA)
    with torch.no_grad():
        for layer in layers.values():
            layer.low_rank_up.normal_(std=0.1)  # type: ignore[union-attr, operator]
    return body


def test_a_linear_layer_is_the_formula() -> None:
    """Numbers that were computed by hand: W = [[1, 2], [3, 4]], A = [1, -1], B = [2, 1], alpha 3,
    rank 1.
    """
    layer = nn.Linear(2, 2).double()
    add_low_rank({"": layer}, 1, 3.0)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.bias.copy_(torch.tensor([0.5, -0.5]))
        layer.low_rank_down.copy_(torch.tensor([[1.0, -1.0]]))  # type: ignore[operator]
        layer.low_rank_up.copy_(torch.tensor([[2.0], [1.0]]))  # type: ignore[operator]
    x = torch.tensor([[1.0, 10.0]], dtype=torch.float64)
    # W + 3 B A = [[7, -4], [6, 1]]
    golden = torch.tensor([[-32.5, 15.5]], dtype=torch.float64)
    assert torch.equal(layer.train()(x), golden)
    assert torch.equal(layer.eval()(x), golden)


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("kernel", [1, 3])
def test_a_convolution_is_the_formula(kernel: int, mode: bool) -> None:
    """W + alpha / r B A with numpy, over stride and padding, and the gradients of A and B."""
    torch.manual_seed(0)
    layer = _filled(nn.Conv2d(3, 5, kernel, stride=2, padding=1).double()).train(mode)
    down, up = layer.low_rank_down, layer.low_rank_up
    product = np.einsum("orij,rckl->ockl", up.detach().numpy(), down.detach().numpy())  # type: ignore[union-attr, operator]
    weight = layer.weight + ALPHA / RANK * torch.from_numpy(product)  # type: ignore[operator]
    x = _random(2, 3, 6, 6)
    torch.testing.assert_close(layer(x), F.conv2d(x, weight, layer.bias, 2, 1), atol=1e-13, rtol=0)  # type: ignore[arg-type]
    whole = weight.detach().requires_grad_()
    F.conv2d(x, whole, layer.bias, 2, 1).square().sum().backward()  # type: ignore[arg-type]
    layer(x).square().sum().backward()
    # d/dB = alpha / r (d/dW) A'
    expected = ALPHA / RANK * whole.grad.flatten(1) @ down.flatten(1).T  # type: ignore[union-attr, operator]
    torch.testing.assert_close(up.grad.flatten(1), expected, atol=1e-10, rtol=1e-10)  # type: ignore[union-attr, operator]


@pytest.mark.parametrize(
    ("arch", "patterns"), [(VIT, None), (RESNET, None), (RESNET, ["*conv*"]), (EFFICIENTNET, None)]
)
def test_merged_equals_unmerged(arch: str, patterns: list[str] | None) -> None:
    """In training, in evaluation and as the plain network with merged tensors; BatchNorm still."""
    body = _adapted(arch, patterns)
    x = _random(3, 3, 32, 32)
    merged = body.eval()(x)
    for module in body.modules():
        module.training = hasattr(module, "low_rank_up")
    torch.testing.assert_close(body(x), merged, atol=1e-12, rtol=1e-12)
    plain = _body(arch).double().eval()
    before = plain(x)
    plain.load_state_dict(merged_tensors(body.state_dict(), ALPHA / RANK))
    assert torch.equal(plain(x), merged)
    assert not torch.allclose(before, merged)


def test_a_network_starts_as_it_was() -> None:
    body = _body(VIT).eval()
    x = torch.randn(2, 3, 32, 32)
    before = body(x)
    names = list(body.state_dict())
    add_low_rank(targets(body, None), RANK, ALPHA)
    assert torch.equal(body(x), before)
    assert [name for name in body.state_dict() if "low_rank" not in name] == names


def test_layers_equal_those_of_peft() -> None:
    peft = pytest.importorskip("peft", reason="needs pip install -e .[oracle]")
    for arch, patterns in ((VIT, None), (RESNET, ["*conv*"])):
        body = _adapted(arch, patterns)
        layers = targets(_body(arch), patterns)
        settings = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=list(layers))
        theirs = peft.inject_adapter_in_model(settings, _body(arch).double())
        for name in layers:
            own = body.get_submodule(name)
            theirs.get_submodule(name).lora_A["default"].weight.data = own.low_rank_down.data  # type: ignore[union-attr]
            theirs.get_submodule(name).lora_B["default"].weight.data = own.low_rank_up.data  # type: ignore[union-attr]
        x = _random(2, 3, 32, 32)
        torch.testing.assert_close(body.eval()(x), theirs.eval()(x), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        (VIT, {"attn.qkv", "attn.proj"}),
        (EFFICIENTNET, {"conv_pw", "conv_pwl", "conv_head"}),
    ],
)
def test_what_is_adapted_unless_targets_are_named(arch: str, expected: set[str]) -> None:
    """Attention in transformers, 1 x 1 convolutions in EfficientNets; no grouped convolution."""
    layers = targets(_body(arch), None)
    ends = {end for end in expected for name in layers if name.endswith(end)}
    assert ends == expected
    assert not any("patch_embed" in name or "mlp" in name or "conv_dw" in name for name in layers)


def test_linear_layers_of_a_perceptron_are_adapted() -> None:
    assert len(targets(MLPFeaturizer((1, 4, 4), 8), None)) == 2


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["*attn.kqv"], r"tuning.targets=\*attn.kqv is the name of no linear layer"),
        (["*attn.qkv", "head"], "tuning.targets=head is the name of no linear layer"),
    ],
)
def test_names_of_no_layer(patterns: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        targets(_body(VIT), patterns)


def test_a_network_without_usual_targets() -> None:
    """DomainBed's network for digits has convolutions of 3 x 3 pixels alone."""
    body = MNISTCNN((2, 28, 28))
    with pytest.raises(ConfigError, match=r"tuning=lora adapts attention.*this backbone has none"):
        targets(body, None)
    assert len(targets(body, ["*"])) == 4


def test_a_rank_above_that_of_a_layer() -> None:
    layers = {"wide": nn.Linear(9, 9), "narrow": nn.Conv2d(1, 5, 2)}
    with pytest.raises(ConfigError, match=r"tuning.rank=5 is above the rank of layer narrow, 4"):
        add_low_rank(layers, 5, 1.0)
    add_low_rank(layers, 4, 1.0)


def test_a_layer_whose_weights_are_read_without_it() -> None:
    """EVA's joint queries, keys and values are computed from the weights of the layer."""

    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.layer.weight)

    network = Reading().to("meta")
    layers = targets(network, ["layer"])
    add_low_rank(layers, 1, 1.0)
    with pytest.raises(ConfigError, match="no effect on layer layer, whose weights"):
        check_reached(network, layers, (4,))


@pytest.mark.parametrize("arch", ["tiny_dinov2", "tiny_siglip", "tiny_dinov3"])
def test_networks_of_timm_call_what_is_adapted(arch: str) -> None:
    """Scales behind branches, an attention pool, rotary positions."""
    assert tiny_timm.SIDE == 32
    with torch.device("meta"):
        body = TimmFeaturizer((3, 32, 32), arch)
    layers = targets(body, None)
    add_low_rank(layers, RANK, ALPHA)
    check_reached(body, layers, (3, 32, 32))
    assert len(layers) >= 8


def test_a_copy_has_parts_of_its_own() -> None:
    """Algorithms copy featurizers."""
    layer = _filled(nn.Linear(3, 3).double())
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.low_rank_up.zero_()  # type: ignore[union-attr, operator]
    x = _random(2, 3)
    assert torch.equal(other(x), F.linear(x, other.weight, other.bias))  # type: ignore[arg-type]
    assert not torch.equal(layer(x), other(x))

"""ARM's context network, and its convolutions by way of Fourier coefficients."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from dgbench.network_specs import ContextSpec
from dgbench.networks.build import build_head
from dgbench.networks.context import ContextNetwork, SameConv2d, convolved


@pytest.mark.parametrize(
    ("height", "width", "kernel"), [(8, 8, 5), (7, 9, 5), (6, 5, 3), (14, 14, 5), (1, 4, 7)]
)
def test_a_product_of_coefficients_is_the_convolution(height: int, width: int, kernel: int) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, height, width, generator=draw, dtype=torch.float64)
    weight = torch.randn(6, 4, kernel, kernel, generator=draw, dtype=torch.float64)
    bias = torch.randn(6, generator=draw, dtype=torch.float64)
    expected = F.conv2d(x, weight, bias, padding=kernel // 2)
    torch.testing.assert_close(convolved(x, weight, bias), expected, rtol=0, atol=5e-13)
    near = convolved(x.float(), weight.float(), bias.float()).double()
    plain = F.conv2d(x.float(), weight.float(), bias.float(), padding=kernel // 2).double()
    assert (near - expected).abs().max() <= 4 * (plain - expected).abs().max(), (
        "rounding like that of the plain sum"
    )


@pytest.mark.parametrize(
    ("side", "channels", "detour"),
    [(8, 64, True), (14, 64, True), (28, 64, True), (64, 64, False), (8, 2, False)],
)
def test_the_detour_is_taken_where_it_saves(
    side: int, channels: int, detour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    monkeypatch.setattr(
        "dgbench.networks.context.convolved", lambda x, w, b: taken.append(1) or F.conv2d(x, w, b)
    )
    layer, x = SameConv2d(channels, 64, 5), torch.zeros(2, channels, side, side)
    assert layer(x).requires_grad
    assert not taken, "gradients are wanted"
    with torch.no_grad():
        layer(x)
    assert bool(taken) == detour


def test_context_keeps_height_and_width() -> None:
    network = build_head(ContextSpec(2))
    assert network(torch.zeros(3, 2, 7, 5), (2, 1)).shape == (2, 1, 7, 5)
    assert [tuple(p.shape) for p in network.parameters() if p.dim() == 4] == [
        (64, 2, 5, 5),
        (64, 64, 5, 5),
        (1, 64, 5, 5),
    ]


def test_context_of_a_group_is_the_mean_over_its_images() -> None:
    network, x = ContextNetwork(2).double(), torch.randn(5, 2, 7, 5, dtype=torch.float64)
    each = network.last(network.body(x))
    torch.testing.assert_close(
        network(x, (2, 3)), torch.stack([each[:2].mean(0), each[2:].mean(0)])
    )


@pytest.mark.parametrize("training", [True, False])
def test_without_gradients_the_same_context_and_statistics(training: bool) -> None:
    """Alone and mapped over runs, of which each moves the statistics of its own BatchNorm."""
    torch.manual_seed(0)
    networks: list[nn.Module] = [ContextNetwork(2).double().train(training) for _ in range(3)]
    x = torch.randn(3, 6, 2, 8, 8, dtype=torch.float64)
    slow = [copy.deepcopy(network) for network in networks]
    expected = torch.stack([network(one, (2, 4)) for network, one in zip(slow, x, strict=True)])
    parameters, buffers = stack_module_state(networks)

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        context: Tensor = functional_call(networks[0], (parameters, buffers), (x, (2, 4)))
        return context

    with torch.no_grad():
        torch.testing.assert_close(vmap(one)(parameters, buffers, x), expected)
        alone = torch.stack(
            [network(one, (2, 4)) for network, one in zip(networks, x, strict=True)]
        )
    torch.testing.assert_close(alone, expected)
    for r, (network, reference) in enumerate(zip(networks, slow, strict=True)):
        for name, value in reference.named_buffers():
            torch.testing.assert_close(network.get_buffer(name), value)
            torch.testing.assert_close(buffers[name][r], value)
        moved = reference.get_buffer("body.1.num_batches_tracked")
        assert int(moved) == training


def test_runs_that_learn_together_take_the_detour_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """``grad`` under ``vmap`` turns gradients on inside of ``no_grad``; the plain sum takes twice
    as long.
    """
    taken = []
    monkeypatch.setattr(
        "dgbench.networks.context.convolved",
        lambda x, w, b: taken.append(len(x)) or F.conv2d(x, w, b, padding=2),
    )
    networks: list[nn.Module] = [ContextNetwork(2) for _ in range(3)]

    def loss(
        weight: Tensor, parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor
    ) -> Tensor:
        with torch.no_grad():
            context: Tensor = functional_call(networks[0], (parameters, buffers), (x, (2, 4)))
        return (context.flatten(1) @ weight).sum()

    slopes = vmap(grad(loss))(
        torch.ones(3, 64, 1), *stack_module_state(networks), torch.randn(3, 6, 2, 8, 8)
    )
    assert slopes.shape == (3, 64, 1)
    assert taken[:3] == [6, 6, 6], "the second layer of each run"

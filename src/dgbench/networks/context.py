"""ARM's context network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dgbench.networks.fourier import SameConv2d


class ContextNetwork(nn.Module):
    """DomainBed's context network: 5 x 5 convolutions that keep the height and width, and the mean over each group.

    Args:
        channels: of the images.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in in (channels, 64):
            layers += [SameConv2d(n_in, 64, 5), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers)
        self.last = SameConv2d(64, 1, 5)

    def forward(self, x: Tensor, groups: Sequence[int]) -> Tensor:
        """(n, channels, H, W) -> (G, 1, H, W); ``groups`` are the G sizes of consecutive groups, their sum is n."""
        # the last layer is linear: it may follow the mean, and then sees G images instead of n
        contexts: Tensor = self.last(self._means(x, tuple(groups)))
        return contexts

    def _means(self, x: Tensor, groups: tuple[int, ...]) -> Tensor:
        """(G, 64, H, W): what the last layer sees, averaged over each group."""
        if torch.is_grad_enabled():
            return means(self.body(x), groups)
        named = dict([*self.body.named_parameters(), *self.body.named_buffers()])
        return OneByOne.apply(self.body, groups, tuple(named), x, *named.values())  # type: ignore[no-any-return]


def means(x: Tensor, groups: tuple[int, ...]) -> Tensor:
    """(n, C, H, W) -> (G, C, H, W); as a product, since a mean over a split is slow where channels come last."""
    last = x.permute(0, 2, 3, 1)
    shares: Tensor = torch.block_diag(*[x.new_full((1, size), 1 / size) for size in groups])  # type: ignore[no-untyped-call]
    return (shares @ last.flatten(1)).view(len(groups), *last.shape[1:]).permute(0, 3, 1, 2)


class OneByOne(torch.autograd.Function):
    """Group means behind a module without gradients; under ``vmap`` run by run, so that each fits the cache."""

    @staticmethod
    def forward(body: nn.Module, groups: tuple[int, ...], names: tuple[str, ...], x: Tensor, *values: Tensor) -> Tensor:
        """Means of ``body(x)`` with the parameters and buffers in ``values``; BatchNorm's statistics move in place."""
        x = x.contiguous(memory_format=torch.channels_last)  # in which BatchNorm is twice as fast
        return means(functional_call(body, dict(zip(names, values, strict=True)), (x,)), groups)

    @staticmethod
    def setup_context(*_: Any) -> None:
        """Nothing is kept: there is no backward pass."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        """One call for each run."""
        runs = [
            [v.select(dim, r) if isinstance(dim, int) else v for v, dim in zip(inputs, in_dims, strict=True)]
            for r in range(info.batch_size)
        ]
        return torch.stack([OneByOne.forward(*own) for own in runs]), 0

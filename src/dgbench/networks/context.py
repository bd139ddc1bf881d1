"""ARM's context network, and its convolution as a product of Fourier coefficients.

The same sums take fewer multiplications there, for small images and without gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

# of the factors and products of a block of images, at one frequency of the height
BLOCK_BYTES = 2**20
LEAST_GAIN = 3  # times fewer multiplications, from which on the detour is faster on a CPU


class ContextNetwork(nn.Module):
    """DomainBed's context network: 5 x 5 convolutions, and the mean over each group.

    Height and width stay.

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
        """Map (n, channels, H, W) to (G, 1, H, W).

        Args:
            x: images.
            groups: sizes of the G groups of consecutive images, which sum to n.
        """
        # the last layer is linear: it may follow the mean, and then sees G images instead of n
        contexts: Tensor = self.last(self._means(x, tuple(groups)))
        return contexts

    def _means(self, x: Tensor, groups: tuple[int, ...]) -> Tensor:
        """Compute the (G, 64, H, W) input of the last layer, averaged over each group."""
        if torch.is_grad_enabled():
            return means(self.body(x), groups)
        tensors = dict([*self.body.named_parameters(), *self.body.named_buffers()])
        return OneByOne.apply(self.body, groups, tuple(tensors), x, *tensors.values())  # type: ignore[no-any-return]


def means(x: Tensor, groups: tuple[int, ...]) -> Tensor:
    """Average (n, C, H, W) over groups to (G, C, H, W).

    This is a product of matrices: means of splits are slow in channels-last.
    """
    if len(groups) == len(x):
        return x
    channels_last = x.permute(0, 2, 3, 1)
    shares: Tensor = torch.block_diag(*[x.new_full((1, size), 1 / size) for size in groups])  # type: ignore[no-untyped-call]
    averages = (shares @ channels_last.flatten(1)).view(len(groups), *channels_last.shape[1:])
    return averages.permute(0, 3, 1, 2)


class OneByOne(torch.autograd.Function):
    """Group means behind a module without gradients.

    Under ``vmap`` the runs come one by one, so that each fits the cache.
    """

    @staticmethod
    def forward(
        body: nn.Module, groups: tuple[int, ...], names: tuple[str, ...], x: Tensor, *values: Tensor
    ) -> Tensor:
        """Average ``body(x)`` by group, with tensors ``names`` = ``values``.

        BatchNorm's statistics move in place.
        """
        x = x.contiguous(memory_format=torch.channels_last)  # in which BatchNorm is twice as fast
        tensors = dict(zip(names, values, strict=True))
        return means(functional_call(body, tensors, (x,)), groups)

    @staticmethod
    def setup_context(*_: Any) -> None:
        """Save nothing: there is no backward pass."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Tensor, int]:
        """Call :meth:`forward` once per run, without gradients.

        Under ``grad``, functorch calls this with gradients on.
        """
        outputs = []
        with torch.no_grad():
            for r in range(info.batch_size):
                of_run = list(inputs)
                for i, dim in enumerate(in_dims):
                    if isinstance(dim, int):
                        of_run[i] = inputs[i].select(dim, r)
                outputs.append(OneByOne.forward(*of_run))
            return torch.stack(outputs), 0


class SameConv2d(nn.Conv2d):
    """A convolution of odd kernel that keeps the height and width.

    Without gradients, on a CPU, it goes through Fourier coefficients wherever that needs less than
    a third of the multiplications, as it does for 64 channels and a 5 x 5 kernel.

    Args:
        n_in: channels.
        n_out: channels.
        kernel: height and width, odd.
    """

    def __init__(self, n_in: int, n_out: int, kernel: int) -> None:
        super().__init__(n_in, n_out, kernel, padding=kernel // 2)

    def forward(self, input: Tensor) -> Tensor:
        """Map (n, n_in, H, W) to (n, n_out, H, W)."""
        slow = torch.is_grad_enabled() or input.device.type != "cpu"
        if slow or self._gain(*input.shape[-2:]) < LEAST_GAIN:
            return super().forward(input)
        assert self.bias is not None
        return convolved(input, self.weight, self.bias)

    def _gain(self, height: int, width: int) -> float:
        """Compute how many times fewer multiplications the detour takes for such images."""
        n_in = self.in_channels
        n_out = self.out_channels
        kernel = self.kernel_size[0]
        n_across = width + kernel // 2
        n_down = (height + kernel // 2) // 2 + 1
        transforms = 2 * n_down * width * (height + 3 * n_across) * (n_in + n_out)
        detour = 3 * n_down * n_across * n_in * n_out + transforms
        return n_in * n_out * (kernel**2 * height * width) / detour


def convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute ``F.conv2d(x, weight, bias, padding=k // 2)`` by Fourier coefficients, for odd k.

    The period is k // 2 pixels longer than the image, so that what wraps around falls on zeros or
    outside. Images are taken in blocks, and in a block one frequency of the height after the other,
    so that all intermediate values stay in the processor's cache.

    Args:
        x: (n, c, H, W)
        weight: (o, c, k, k)
        bias: (o,)

    Returns:
        (n, o, H, W), channels last in memory
    """
    n, c, height, width = x.shape
    o, _, k, _ = weight.shape
    matrices = _transforms(height, width, k, x.dtype)
    n_down = len(matrices.down) // 2
    n_factors = len(matrices.across)
    taps = weight.permute(2, 3, 1, 0).reshape(-1, c * o)
    factors = (matrices.kernel @ taps).view(n_down, n_factors, c, o)
    convolution = x.new_empty(n, height, width, o)
    images = max(1, BLOCK_BYTES // (4 * n_factors * (c + o)))
    for block, out in zip(torch.split(x, images), torch.split(convolution, images), strict=True):
        m = len(block)
        columns = block.permute(2, 3, 0, 1).reshape(height, -1)
        rows = (matrices.down @ columns).view(n_down, 2 * width, m * c)
        product_rows = x.new_empty(n_down, 2 * width, m * o)
        image_factors = x.new_empty(n_factors, m * c)
        product = x.new_empty(n_factors, m, o)
        for d in range(n_down):
            torch.mm(matrices.across, rows[d], out=image_factors)
            torch.bmm(image_factors.view(n_factors, m, c), factors[d], out=product)
            torch.mm(matrices.back_across, product.view(n_factors, m * o), out=product_rows[d])
        pixels = (matrices.back_down @ product_rows.view(2 * n_down, -1)).view(height, width, m, o)
        torch.add(pixels.permute(2, 0, 1, 3), bias, out=out)
    return convolution.permute(0, 3, 1, 2)


class Transforms(NamedTuple):
    """Matrices between pixels and Fourier coefficients, along the height and then along the width.

    Coefficients are kept of half the frequencies of the height (n_down; the others are conjugates)
    and of all of the width (n_across). A complex product takes three real ones, of the sums of both
    parts, of the real and of the imaginary parts, so a coefficient has three factors. ``2 x W`` is
    all real pixels and then all imaginary ones.
    """

    down: Tensor  #: (n_down x 2, H): real pixels -> complex
    across: Tensor  #: (3 x n_across, 2 x W): complex -> factors
    kernel: Tensor  #: (n_down x 3 x n_across, k * k): taps -> factors
    back_across: Tensor  #: (2 x W, 3 x n_across): products -> complex
    back_down: Tensor  #: (H, n_down x 2): complex -> real pixels


@cache
def _transforms(height: int, width: int, k: int, dtype: torch.dtype) -> Transforms:
    period = height + k // 2
    n_across = width + k // 2
    n_down = period // 2 + 1
    v = torch.arange(n_down).double() / period
    u = torch.arange(n_across).double() / n_across
    y = 2 * math.pi * torch.arange(height).double()
    x = 2 * math.pi * torch.arange(width).double()
    taps = 2 * math.pi * torch.arange(-(k // 2), k // 2 + 1).double()
    angles_y = v[:, None] * y
    angles_x = u[:, None] * x
    angles_k = v[:, None, None, None] * taps[:, None] + u[:, None, None] * taps
    angles_k = angles_k.reshape(n_down, n_across, k * k)
    # for the conjugates, which are not kept
    weights = torch.full((n_down, 1), 2 / period, dtype=torch.float64)
    weights[0] = 1 / period
    if period % 2 == 0:
        weights[-1] = 1 / period
    cos = angles_x.cos()
    sin = angles_x.sin()
    real = torch.cat([cos.T, sin.T]) / n_across
    imaginary = torch.cat([-sin.T, cos.T]) / n_across
    back_down = torch.stack([angles_y.cos() * weights, -angles_y.sin() * weights], 1)
    # the kernel's coefficients are conjugates: this convolution correlates
    matrices = Transforms(
        down=torch.stack([angles_y.cos(), -angles_y.sin()], 1).flatten(0, 1),
        across=_factors(torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)),
        kernel=_factors(angles_k.cos(), angles_k.sin(), 1).flatten(0, 1),
        back_across=torch.cat([imaginary, real - imaginary, -real - imaginary], 1),
        back_down=back_down.flatten(0, 1).T.contiguous(),
    )
    return Transforms(*(matrix.to(dtype) for matrix in matrices))


def _factors(real: Tensor, imaginary: Tensor, axis: int = 0) -> Tensor:
    """Split complex numbers into 3 factors.

    Products p of two numbers' factors give (p1 - p2) + (p0 - p1 - p2) i.
    """
    return torch.cat([real + imaginary, real, imaginary], axis)

"""A convolution as a product of Fourier coefficients: the same sums from fewer multiplications, for small images."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor, nn

WORTH = 2  # times fewer multiplications, from which on the detour is faster on a CPU


class SameConv2d(nn.Conv2d):
    """A convolution of odd kernel that keeps the height and width.

    Without gradients, on a CPU, it goes through Fourier coefficients wherever that needs less than half of the
    multiplications: up to about 14 x 14 pixels for 64 channels and a 5 x 5 kernel.

    Args:
        n_in: channels.
        n_out: channels.
        kernel: height and width, odd.
    """

    def __init__(self, n_in: int, n_out: int, kernel: int) -> None:
        super().__init__(n_in, n_out, kernel, padding=kernel // 2)

    def forward(self, input: Tensor) -> Tensor:
        """(n, n_in, H, W) -> (n, n_out, H, W)."""
        height, width = input.shape[-2:]
        n_in, n_out, kernel = self.in_channels, self.out_channels, self.kernel_size[0]
        f = (height + kernel // 2) * ((width + kernel // 2) // 2 + 1)
        detour = 4 * f * n_in * n_out + 2 * f * height * width * (n_in + n_out)
        if (
            torch.is_grad_enabled()
            or input.device.type != "cpu"
            or WORTH * detour > n_in * n_out * (kernel**2 * height * width)
        ):
            return super().forward(input)
        assert self.bias is not None
        return convolved(input, self.weight, self.bias)


def convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``F.conv2d(x, weight, bias, padding=k // 2)`` for an odd kernel of k x k.

    The period is k // 2 pixels longer than the image, so that what wraps around falls on zeros or outside.

    Args:
        x: (n, c, H, W)
        weight: (o, c, k, k)
        bias: (o,)

    Returns:
        (n, o, H, W), channels last in memory
    """
    (n, c, height, width), (o, _, k, _) = x.shape, weight.shape
    of_image, of_kernel, back = _transforms(height, width, k, x.dtype)
    f = len(of_image) // 2
    a = (of_image @ x.permute(2, 3, 0, 1).reshape(-1, n * c)).view(2, f, n, c)
    b = (of_kernel @ weight.permute(2, 3, 1, 0).reshape(-1, c * o)).view(2, f, c, o)
    product = x.new_empty(2, f, n, o)
    torch.bmm(a[0], b[0], out=product[0]).baddbmm_(a[1], b[1], alpha=-1)
    torch.bmm(a[0], b[1], out=product[1]).baddbmm_(a[1], b[0])
    pixels = (back @ product.view(2 * f, n * o)).view(height, width, n, o)
    made = x.new_empty(n, height, width, o)
    return torch.add(pixels.permute(2, 0, 1, 3), bias, out=made).permute(0, 3, 1, 2)


@cache
def _transforms(height: int, width: int, k: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices: pixels of an image, taps of a kernel to real and imaginary coefficients; these back to pixels."""
    long, wide = height + k // 2, width + k // 2
    rows, columns = torch.arange(long).double(), torch.arange(wide // 2 + 1).double()

    def phases(y: Tensor, x: Tensor) -> Tensor:
        """(F, len(y) * len(x)) angles."""
        down = rows[:, None, None, None] * y[:, None] / long
        across = columns[:, None, None] * x / wide
        return (2 * math.pi * (down + across)).reshape(len(rows) * len(columns), -1)

    image = phases(torch.arange(height).double(), torch.arange(width).double())
    taps = torch.arange(-(k // 2), k // 2 + 1).double()
    kernel = phases(taps, taps)
    twice = torch.full((len(columns),), 2.0).double()  # the other half of the coefficients are conjugates
    twice[0] = 1
    if wide % 2 == 0:
        twice[-1] = 1
    share = (twice / (long * wide)).repeat(long)[:, None]
    of_image = torch.cat([image.cos(), -image.sin()])
    of_kernel = torch.cat([kernel.cos(), kernel.sin()])  # the conjugate: deep learning's convolution is a correlation
    back = torch.cat([image.cos() * share, -image.sin() * share]).T.contiguous()
    return of_image.to(dtype), of_kernel.to(dtype), back.to(dtype)

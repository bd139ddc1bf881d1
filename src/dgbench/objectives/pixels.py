"""From normalized images to pixels in [0, 1] and back, and views of images made in pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.network_specs import Sizes

LEVELS = 255  # of an 8-bit image


def to_pixels(x: Tensor, sizes: Sizes) -> Tensor:
    """Map (N, C, H, W) images as networks see them, normalized, to pixels in [0, 1]."""
    if not sizes.pixel_std:
        return x
    return x * _per_channel(sizes.pixel_std, x) + _per_channel(sizes.pixel_mean, x)


def from_pixels(u: Tensor, sizes: Sizes) -> Tensor:
    """Normalize (N, C, H, W) images in [0, 1] to what networks see."""
    if not sizes.pixel_std:
        return u
    return (u - _per_channel(sizes.pixel_mean, u)) / _per_channel(sizes.pixel_std, u)


def _per_channel(values: tuple[float, ...], like: Tensor) -> Tensor:
    """Build a (C, 1, 1) tensor of one value per channel without a copy from the host."""
    numbers = [torch.full((), value, dtype=like.dtype, device=like.device) for value in values]
    return torch.stack(numbers)[:, None, None]


def quantized(u: Tensor) -> Tensor:
    """Round values in [0, 1] down to the 256 levels of an 8-bit image.

    A value below a level by no more than the rounding error of ``to_pixels`` counts as that level.
    """
    slack = 1024 * torch.finfo(u.dtype).eps
    return (u * LEVELS + slack).floor() / LEVELS


def amplitude_mix(u: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Mix the Fourier amplitudes of images with those of other rows, and keep the phases.

    The result is clipped to [0, 1].

    Args:
        u: (N, C, H, W) in [0, 1].
        partner: (N,) row whose amplitudes are mixed in.
        weight: (N,) of the partner's amplitudes; the row's own get the rest.
    """
    spectrum = torch.fft.rfft2(u)
    amplitude = spectrum.abs()
    share = weight[:, None, None, None]
    mixed = (1 - share) * amplitude + share * amplitude[partner]
    images: Tensor = torch.fft.irfft2(torch.polar(mixed, spectrum.angle()), s=u.shape[-2:])
    return images.clamp(0, 1)


def gray(u: Tensor) -> Tensor:
    """Map (..., 3, H, W) red, green and blue to the luminance in all three channels."""
    red, green, blue = u.unbind(-3)
    return (0.299 * red + 0.587 * green + 0.114 * blue).unsqueeze(-3).expand_as(u)

"""The 15 corruptions of Hendrycks & Dietterich (2019), "Benchmarking Neural Network Robustness to Common Corruptions
and Perturbations", section 4 and appendix A, as batched functions of (images, severity, :class:`Chance`).

Parameters per severity, borders and truncation to whole gray levels are those of the authors' package for images of
any size; ``tests/data/test_corruptions.py`` compares every one of them with it, given the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dgbench.data.transforms.corruption_names import SMALLEST, VERSION
from dgbench.data.transforms.corruptions import blur, digital, noise, weather
from dgbench.data.transforms.corruptions.chance import Chance
from dgbench.errors import ConfigError, DataError

__all__ = ["CORRUPTIONS", "SMALLEST", "VERSION", "Chance", "corrupt"]

CORRUPTIONS: dict[str, Callable[[Tensor, int, Chance], Tensor]] = {
    function.__name__: function
    for function in (
        noise.gaussian_noise,
        noise.shot_noise,
        noise.impulse_noise,
        blur.defocus_blur,
        blur.glass_blur,
        blur.motion_blur,
        blur.zoom_blur,
        weather.snow,
        weather.frost,
        weather.fog,
        weather.brightness,
        digital.contrast,
        digital.elastic_transform,
        digital.pixelate,
        digital.jpeg_compression,
    )
}


def corrupt(images: Tensor, name: str, severity: int, chance: Chance) -> Tensor:
    """Corrupt images.

    Args:
        images: (n, 3, H, W) uint8, at least 32 pixels high and wide.
        name: one of :data:`CORRUPTIONS`.
        severity: 1 (mild) to 5.
        chance: random numbers; the same seed and the same images give the same result.

    Returns:
        (n, 3, H, W) uint8.

    Raises:
        ConfigError: unknown name or severity.
        DataError: images that are too small or have no three channels.
    """
    if name not in CORRUPTIONS:
        raise ConfigError(f"corruption {name} is unknown; choose from {', '.join(CORRUPTIONS)}")
    if severity not in (1, 2, 3, 4, 5):
        raise ConfigError(f"severity {severity} is unknown; choose 1 (mild) to 5 (strong)")
    if images.shape[1] != 3 or min(images.shape[2:]) < SMALLEST:
        channels, height, width = images.shape[1:]
        raise DataError(
            f"images of {channels} x {height} x {width} cannot be corrupted; "
            f"give three channels and at least {SMALLEST} pixels a side"
        )
    x = CORRUPTIONS[name](images.float() / 255, severity, chance)
    return torch.floor(x.clamp(0, 1) * 255 + 1e-3).to(torch.uint8)  # 1e-3: single precision, e.g. 254.9999 is 255

"""Gaussian, shot and impulse noise (Hendrycks & Dietterich 2019, appendix A). Images are (n, 3, H, W) in [0, 1]."""

from __future__ import annotations

from torch import Tensor

from dgbench.data.transforms.corruptions.chance import Chance


def gaussian_noise(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Normal noise on every channel; appears in low light."""
    return x + (0.08, 0.12, 0.18, 0.26, 0.38)[severity - 1] * chance.normal(*x.shape)


def shot_noise(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Poisson counts of a few photons for full brightness."""
    photons = (60, 25, 12, 5, 3)[severity - 1]
    return chance.poisson(x * photons) / photons


def impulse_noise(x: Tensor, severity: int, chance: Chance) -> Tensor:
    """Salt and pepper: single channel values become 0 or 1, as bit errors do."""
    share = (0.03, 0.06, 0.09, 0.17, 0.27)[severity - 1]
    hit = chance.uniform(0, 1, *x.shape) <= share
    salt = chance.uniform(0, 1, *x.shape) <= 0.5
    return x.where(~hit, salt.to(x.dtype))

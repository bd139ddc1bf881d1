"""The random numbers of a corruption: everything it draws goes through one object."""

from __future__ import annotations

import torch
from torch import Tensor


class Chance:
    """Draws from one generator, so that a corruption is a pure function of images, severity and seed.

    Args:
        seed: of the generator; derive it with :func:`dgbench.seeding.derive`.
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers in [low, high)."""
        return torch.rand(shape, generator=self.generator) * (high - low) + low

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """int64 numbers in {low, ..., high - 1}."""
        return torch.randint(low, high, shape, generator=self.generator)

    def poisson(self, rates: Tensor) -> Tensor:
        """Counts with these expectations."""
        return torch.poisson(rates, generator=self.generator)

"""Published schedules in epochs, as functions of the step."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor

Count = TypeVar("Count", int, Tensor)


def epoch_of(step: Count, epochs: int, n_steps: int) -> Count:
    """Whole epoch that a step belongs to, if ``n_steps`` steps are ``epochs`` epochs."""
    return step * epochs // max(n_steps, 1)


def dropped(step: int, share: float, n_steps: int) -> float:
    """Learning rate in parts of the full one: a tenth after this share of the steps; 1 is never."""
    return 0.1 if share < 1 and step >= share * n_steps else 1.0

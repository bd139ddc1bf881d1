"""Random inputs of an objective, declared with shape and meaning and drawn outside of it.

An objective draws nothing: it names what it needs, whoever trains it draws that from a generator of its own or puts
given numbers in their place. Inputs are drawn in the order in which they are declared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RandomInput(ABC):
    """An array of random numbers; a subclass says how they are distributed.

    Args:
        shape: of one step, or of one prediction.
        description: what the numbers are for.
    """

    shape: tuple[int, ...]
    description: str = ""

    @abstractmethod
    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        """(steps, \\*shape) independent draws."""


RandomInputs = Mapping[str, RandomInput]


@dataclass(frozen=True)
class Uniform(RandomInput):
    """U(0, 1)."""

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return rng.random((steps, *self.shape))


@dataclass(frozen=True)
class Integers(RandomInput):
    """Integers from 0 to b - 1, b by the position along the last axis.

    Args:
        below: the b's, as many as the last axis is long.
    """

    below: tuple[int, ...] = ()

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return rng.integers(0, self.below, (steps, *self.shape))


@dataclass(frozen=True)
class Normal(RandomInput):
    """N(0, 1), drawn in single precision."""

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return rng.standard_normal((steps, *self.shape), dtype=np.float32)


@dataclass(frozen=True)
class Beta(RandomInput):
    """Beta(alpha, alpha)."""

    alpha: float = 1.0

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return rng.beta(self.alpha, self.alpha, (steps, *self.shape))


@dataclass(frozen=True)
class Bernoulli(RandomInput):
    """True with probability ``p``."""

    p: float = 0.5

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        drawn: np.ndarray = rng.random((steps, *self.shape)) <= self.p
        return drawn


@dataclass(frozen=True)
class Permutation(RandomInput):
    """Permutations of 0, ..., n-1 along the last axis, whose length is n."""

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        shape = (steps, *self.shape)
        return rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)


@dataclass(frozen=True)
class CrossPermutation(RandomInput):
    """Partners from the other half: with 2 n the length of the last axis, each half is a permutation of the other."""

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        half = self.shape[-1] // 2
        one = Permutation((*self.shape[:-1], half))
        return np.concatenate([start + one.draw(rng, steps) for start in (half, 0)], -1)


def draw(inputs: RandomInputs, rng: np.random.Generator, steps: int) -> dict[str, np.ndarray]:
    """All inputs in the order of their declaration; axis 0 of each array is the step."""
    return {name: declared.draw(rng, steps) for name, declared in inputs.items()}

"""Samples without random numbers, of which all values were worked out by a second
implementation.
"""

from __future__ import annotations

import numpy as np


def waves(n: int, m: int, phase: float = 0.0) -> np.ndarray:
    """(n, m): sin(0.7 i j + phase) + 0.3 cos(1.3 i (j + 1)) with rows i and columns j from 1."""
    i, j = np.arange(1, n + 1)[:, None], np.arange(1, m + 1)[None]
    return np.sin(0.7 * i * j + phase) + 0.3 * np.cos(1.3 * i * (j + 1))


def two_sides() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p and q, (40, 2) each, not standardized, and the labels (40,) of both:
    both kinds of shift.
    """
    y = np.arange(40) % 2
    p, q = waves(40, 2), waves(40, 2, 1.0)
    p[:, 0] += 1.5 * (2 * y - 1)
    q[:, 0] -= 1.5 * (2 * y - 1)
    q[10:, 1] += 4
    return p, q, y


def two_small_sets() -> tuple[np.ndarray, np.ndarray]:
    """(12, 3) and (9, 3)."""
    return waves(12, 3), waves(9, 3, 1.0) + np.array([0.5, 0, -0.25])


def grid() -> tuple[np.ndarray, np.ndarray]:
    """The centers of an 80 x 80 grid on [-4, 4]^2, (6400, 2), and the density of its points."""
    centers = (np.arange(80) + 0.5) / 10 - 4
    return np.stack(np.meshgrid(centers, centers), axis=-1).reshape(-1, 2), np.full(6400, 1 / 64)


def normal_quantiles(mean: float, n: int) -> np.ndarray:
    """n points that stand for N(mean, 1): averages over them are integrals."""
    from scipy.stats import norm

    return mean + norm.ppf((np.arange(n) + 0.5) / n)

"""Gaussian kernel density estimates in logarithms, and the standardization that goes before them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import DataError

Floats = NDArray[np.floating[Any]]

RANK = 1e-10  # directions with a smaller share of the largest variance count as constant
BLOCK = 512  # points at a time: bounds memory


class SingularError(ValueError):
    """Features that have no density: fewer points than dimensions, or points in a plane."""


class GaussianKDE:
    """Density of a sample: a Gaussian about each of its n points, with one covariance.

    That covariance is the sample's (divisor n - 1, full matrix) times the square of Scott's factor n^(-1/(m+4)), as in
    ``scipy.stats.gaussian_kde``. Far from all points, where the density underflows, its logarithm stays exact.

    Args:
        features: (n, m).

    Raises:
        SingularError: n <= m, or the features lie in a plane.
    """

    def __init__(self, features: Floats) -> None:
        self.features = np.asarray(features, dtype=np.float64)
        n, m = self.features.shape
        if n <= m:
            raise SingularError(f"{n} points in {m} dimensions")
        self.factor = n ** (-1 / (m + 4))
        self.covariance = np.atleast_2d(np.cov(self.features, rowvar=False)) * self.factor**2
        variances = np.linalg.eigvalsh(self.covariance)
        if not variances[0] > RANK * variances[-1]:
            raise SingularError(f"{n} points in a plane")
        self._root = np.linalg.cholesky(self.covariance)
        self._center = self.features.mean(axis=0)  # whitened about it: rounding grows with the squared distance from 0
        self._whitened = self._white(self.features)
        self._squares = np.square(self._whitened).sum(axis=1)
        self._constant = math.log(n) + m / 2 * math.log(2 * math.pi) + float(np.log(self._root.diagonal()).sum())

    def log_density(self, points: Floats) -> Floats:
        """Logarithm of the density at points (M, m), as (M,)."""
        return np.concatenate([self._log_density(points[at : at + BLOCK]) for at in range(0, len(points), BLOCK)])

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """n points (n, m) of this density."""
        chosen = self.features[rng.integers(len(self.features), size=n)]
        return np.asarray(chosen + rng.standard_normal(chosen.shape) @ self._root.T)

    def _white(self, points: Floats) -> Floats:
        from scipy.linalg import solve_triangular

        return np.asarray(solve_triangular(self._root, (points - self._center).T, lower=True).T)

    def _log_density(self, points: Floats) -> Floats:
        white = self._white(points)
        exponents = white @ self._whitened.T
        exponents -= np.square(white).sum(axis=1, keepdims=True) / 2
        exponents -= self._squares / 2
        highest = exponents.max(axis=1, keepdims=True)
        exponents -= highest
        total = np.exp(exponents, out=exponents).sum(axis=1)
        return np.asarray(highest[:, 0] + np.log(total) - self._constant)


def standardized(z_p: Floats, z_q: Floats) -> tuple[Floats, Floats, int]:
    """Both samples with mean 0 and variance 1 (divisor N) of every coordinate of their union.

    Directions without variance have no density: constant coordinates are dropped, and where others are collinear the
    samples are projected on the directions that vary (variance at least 1e-10 of the largest).

    Args:
        z_p, z_q: (n_p, m), (n_q, m).

    Returns:
        The samples, (n_p, rank) and (n_q, rank), and the rank; it is m unless something was dropped.

    Raises:
        DataError: all features are equal.
    """
    union = np.concatenate([z_p, z_q]).astype(np.float64)
    union = union[:, np.ptp(union, axis=0) > 0]
    if not union.shape[1]:
        raise DataError("all images have the same features; use another backbone or other initial weights")
    union = (union - union.mean(axis=0)) / union.std(axis=0)
    variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(union, rowvar=False)))
    varying = variances >= RANK * variances[-1]
    if not varying.all():
        union = union @ directions[:, varying]
    return union[: len(z_p)], union[len(z_p) :], union.shape[1]

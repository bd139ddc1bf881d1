"""Fréchet distance between the features of two sets of images (Heusel et al. 2017, equation 6; Yu et al. 2024).

d^2 = |mean_1 - mean_2|^2 + Tr(C_1 + C_2 - 2 (C_1 C_2)^(1/2)), means and covariances (divisor n - 1) of the features.
With any factor F of a covariance, C = F^T F, the trace of the root is the sum of the singular values of F_1 F_2^T: no
root of a matrix that rounding has made asymmetric, nothing added to diagonals, exact with fewer images than features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Gaussian:
    """Mean and covariance of features."""

    mean: Floats  #: (d,)
    factor: Floats  #: (k, d), its product with itself is the covariance, factor^T factor


def gaussian_of_samples(features: Floats) -> Gaussian:
    """Of features (n, d), n >= 2."""
    mean = features.mean(axis=0, dtype=np.float64)
    factor = (features - mean) / np.sqrt(len(features) - 1)
    n, d = factor.shape
    return Gaussian(mean, np.asarray(np.linalg.qr(factor, mode="r")) if n > d else factor)


def gaussian_of_moments(mean: Floats, covariance: Floats) -> Gaussian:
    """Of a mean (d,) and a covariance (d, d); eigenvalues that rounding made negative count as 0."""
    variances, directions = np.linalg.eigh(covariance)
    return Gaussian(np.asarray(mean), np.sqrt(variances.clip(0))[:, None] * directions.T)


def frechet(first: Gaussian, second: Gaussian) -> float:
    """Squared Fréchet distance; unit: that of the features, squared. Of two samples of one law it is about c / n.

    Raises:
        ValueError: features of different length.
    """
    if first.mean.shape != second.mean.shape:
        raise ValueError(f"features of length {len(first.mean)} and {len(second.mean)} have no distance")
    traces = np.square(first.factor).sum() + np.square(second.factor).sum()
    of_root = np.linalg.svd(first.factor @ second.factor.T, compute_uv=False).sum()
    return max(0.0, float(np.square(first.mean - second.mean).sum() + traces - 2 * of_root))


def sizes_between(n: int, count: int = 5) -> list[int]:
    """Sample sizes from n / 2 to n, equally far apart in 1 / n."""
    return [round(1 / inverse) for inverse in np.linspace(2 / n, 1 / n, count)]


def at_infinity(sizes: Sequence[int], distances: Sequence[float]) -> float:
    """Intercept of least squares of d^2 on 1 / n: without most of the bias (Chong & Forsyth 2020); may be negative."""
    inverse = 1 / np.asarray(sizes, dtype=np.float64)
    return float(np.polynomial.polynomial.polyfit(inverse, np.asarray(distances), 1)[0])


def extrapolated(features: Floats, other: Floats | Gaussian, rng: np.random.Generator) -> float:
    """:func:`frechet` at infinitely many images, from random subsets of five sizes between n / 2 and n.

    Args:
        features: (n, d).
        other: (m, d), subsets of which have the same sizes, at most min(n, m); or a Gaussian that stays as it is, whose
            own bias then stays too.
        rng: source of the draws.
    """
    n = len(features) if isinstance(other, Gaussian) else min(len(features), len(other))
    sizes = sizes_between(n)
    distances = [
        frechet(_of_some(features, size, rng), other if isinstance(other, Gaussian) else _of_some(other, size, rng))
        for size in sizes
    ]
    return at_infinity(sizes, distances)


def _of_some(features: Floats, size: int, rng: np.random.Generator) -> Gaussian:
    return gaussian_of_samples(features[rng.choice(len(features), size, replace=False)])

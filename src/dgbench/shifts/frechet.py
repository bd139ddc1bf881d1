"""Fréchet distance between the features of two sets of images (Heusel et al. 2017, equation 6; Yu et al. 2024).

d^2 = |mean_1 - mean_2|^2 + Tr(C_1 + C_2 - 2 (C_1 C_2)^(1/2)), means and covariances (divisor n - 1) of the features.
With any factor F of a covariance, C = F^T F, the trace of the root is the sum of the singular values of F_1 F_2^T: no
root of a matrix that rounding has made asymmetric, nothing added to diagonals, exact with fewer images than features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def frechet(a: Floats, b: Floats) -> float:
    """Squared Fréchet distance of two samples; unit: that of the features, squared.

    Biased upwards, by about c / n for samples of one law: only values of equal n can be compared.

    Args:
        a, b: (n, d), (m, d), 2 or more of each.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return _distance(a.mean(axis=0), _factor_of_samples(a), b.mean(axis=0), _factor_of_samples(b))


def frechet_of_moments(mean_a: Floats, covariance_a: Floats, mean_b: Floats, covariance_b: Floats) -> float:
    """Squared Fréchet distance of two Gaussians.

    Args:
        mean_a, mean_b: (d,).
        covariance_a, covariance_b: (d, d), divisor n - 1.
    """
    return _distance(mean_a, _factor_of_covariance(covariance_a), mean_b, _factor_of_covariance(covariance_b))


def extrapolated(sizes: Sequence[int] | NDArray[np.int64], distances: Sequence[float] | Floats) -> float:
    """Squared distance at infinitely many images: intercept of least squares of d^2 on 1 / n (Chong & Forsyth 2020).

    Most of the bias is gone, and the value may be negative.

    Args:
        sizes: numbers of images n, two or more different ones, for instance five from half of all images to all.
        distances: squared distances at these.
    """
    inverse = 1 / np.asarray(sizes, dtype=np.float64)
    return float(np.polynomial.polynomial.polyfit(inverse, np.asarray(distances), 1)[0])


def _distance(mean_a: Floats, factor_a: Floats, mean_b: Floats, factor_b: Floats) -> float:
    traces = np.square(factor_a).sum() + np.square(factor_b).sum()
    of_root = np.linalg.svd(factor_a @ factor_b.T, compute_uv=False).sum()
    # rounding may make the distance of equal samples negative
    return max(0.0, float(np.square(mean_a - mean_b).sum() + traces - 2 * of_root))


def _factor_of_samples(features: Floats) -> Floats:
    factor = (features - features.mean(axis=0)) / np.sqrt(len(features) - 1)
    n, d = factor.shape
    return np.asarray(np.linalg.qr(factor, mode="r")) if n > d else factor  # the triangle is smaller, with one product


def _factor_of_covariance(covariance: Floats) -> Floats:
    variances, directions = np.linalg.eigh(covariance)
    return np.asarray(np.sqrt(variances.clip(0))[:, None] * directions.T)

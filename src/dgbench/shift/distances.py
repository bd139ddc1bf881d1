"""Distances between two sets of features or of predictions; none is 0 for two samples of one distribution.

Earth mover's distance, maximum mean discrepancy and the index NI: Ye et al. 2022, "OoD-Bench", table 3, prints all
three without saying how they were computed; here, on standardized features of balanced sides.
Fréchet distance: Heusel et al. 2017, equation 6; Yu et al. 2024.
Disagreement of classifiers: Zhang et al. 2023, "NICO++", section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import DataError

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # factors of the kernel's width


def emd(a: Floats, b: Floats) -> float:
    """Earth mover's distance (Wasserstein-1, Euclidean) of two samples of equal size.

    An optimal coupling of n equal weights with n equal weights is an assignment.

    Args:
        a, b: (n, m), (n, m).

    Raises:
        ValueError: the sizes differ.
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    if len(a) != len(b):
        raise ValueError(f"samples of equal size are needed, these have {len(a)} and {len(b)}")
    cost = cdist(a, b)
    return float(cost[linear_sum_assignment(cost)].mean())


def median_distance(a: Floats, b: Floats) -> float:
    """Median of the Euclidean distances of all pairs i < j of both samples together; the usual width of a kernel."""
    from scipy.spatial.distance import pdist

    return float(np.median(pdist(np.concatenate([a, b]))))


def kernel_matrix(a: Floats, b: Floats, sigma: float) -> Floats:
    """exp(-|x - x'|^2 / (2 sigma^2)) of both samples together: (n + m, n + m), those of a first.

    Raises:
        DataError: the width is 0.
    """
    if not sigma > 0:
        raise DataError(
            f"a kernel of width {sigma} compares nothing, most features are equal; "
            "use another backbone, other initial weights, or drop this distance"
        )
    both = np.concatenate([a, b]).astype(np.float64)
    both -= both.mean(axis=0)  # the products below lose digits far from 0
    squares = np.square(both).sum(axis=1)
    distances = squares[:, None] + squares - 2 * both @ both.T  # one product: ten times as fast as pair by pair
    return np.asarray(np.exp(distances.clip(0) / (-2 * sigma**2)))


def mmd2(a: Floats, b: Floats, sigma: float) -> tuple[float, float]:
    """Squared maximum mean discrepancy with a Gaussian kernel (Gretton et al. 2012), biased and unbiased.

    E k(a, a') + E k(b, b') - 2 E k(a, b); the unbiased form leaves out k(x, x) and may be negative.

    Args:
        a, b: (n, d), (m, d).
        sigma: width of the kernel, see :func:`median_distance`.

    Raises:
        DataError: the width is 0.
    """
    env = np.repeat([0, 1], [len(a), len(b)])
    biased, unbiased = mmd2_of_kernel(kernel_matrix(a, b, sigma), env[None])
    return float(biased[0]), float(unbiased[0])


def mmd2_mean_over_widths(a: Floats, b: Floats, sigma: float) -> tuple[float, float]:
    """:func:`mmd2`, biased and unbiased, as mean over widths from a quarter of sigma to 4 sigma."""
    biased, unbiased = np.mean([mmd2(a, b, sigma * factor) for factor in WIDTHS], axis=0)
    return float(biased), float(unbiased)


def mmd2_of_kernel(kernel: Floats, env: Ints) -> tuple[Floats, Floats]:
    """Squared maximum mean discrepancy for several ways of telling the sides, biased and unbiased, (R,) each.

    Args:
        kernel: (N, N) kernel values of all points.
        env: (R, N) side of each point, 0 or 1.
    """
    first, second = ((env == side).astype(np.float64) for side in (0, 1))
    of_first, of_second = first @ kernel, second @ kernel  # (R, N)
    n, m = first.sum(axis=1), second.sum(axis=1)
    between = 2 * (of_first * second).sum(axis=1) / (n * m)
    within_first, within_second = (of_first * first).sum(axis=1), (of_second * second).sum(axis=1)
    same_first, same_second = first @ kernel.diagonal(), second @ kernel.diagonal()
    biased = within_first / n**2 + within_second / m**2 - between
    unbiased = (within_first - same_first) / (n * (n - 1)) + (within_second - same_second) / (m * (m - 1)) - between
    return biased, unbiased


def ni(a: Floats, b: Floats) -> float:
    """Non-i.i.d. index (He et al. 2020, definition 1): norm of the difference of means in units of deviations.

    The deviation of a coordinate is that of both samples together, divisor N; constant coordinates are left out.

    Args:
        a, b: (n, d), (m, d).
    """
    both = np.concatenate([a, b]).astype(np.float64)
    varying = np.ptp(both, axis=0) > 0
    apart = (both[: len(a)].mean(axis=0) - both[len(a) :].mean(axis=0))[varying] / both.std(axis=0)[varying]
    return float(np.linalg.norm(apart))


def ni_by_class(a: Floats, y_a: Ints, b: Floats, y_b: Ints) -> tuple[float, dict[int, float]]:
    """:func:`ni` of each class, and their mean weighted by the classes' images.

    Args:
        a, b: (n, d), (m, d) features.
        y_a, y_b: (n,), (m,) labels; a class of one side only is left out.
    """
    values = {int(label): ni(a[y_a == label], b[y_b == label]) for label in np.intersect1d(y_a, y_b)}
    counts = [int((y_a == label).sum() + (y_b == label).sum()) for label in values]
    return float(np.average(list(values.values()), weights=counts)), values


def permutation_p(kernel: Floats, env: Ints, y: Ints, repeats: int, rng: np.random.Generator) -> float:
    """Share of permutations in which the unbiased discrepancy is as large: (1 + #{>= observed}) / (repeats + 1).

    Sides are permuted within each class, so that only the features of a class are compared.

    Args:
        kernel: (N, N), see :func:`kernel_matrix`.
        env: (N,) side of each point.
        y: (N,) class of each point.
        repeats: permutations drawn.
        rng: source of the draws.
    """
    drawn = np.tile(env, (repeats + 1, 1))  # the first line stays as observed
    for label in np.unique(y):
        drawn[1:, y == label] = rng.permuted(drawn[1:, y == label], axis=1)
    observed, *others = mmd2_of_kernel(kernel, drawn)[1]
    # equal lines may differ by rounding
    reached = np.asarray(others) >= observed - 1e-12 * abs(observed)
    return float((1 + reached.sum()) / (repeats + 1))


def frechet(a: Floats, b: Floats) -> float:
    """Squared Fréchet distance of two samples; unit: that of the features, squared.

    d^2 = |mean_1 - mean_2|^2 + Tr(C_1 + C_2 - 2 (C_1 C_2)^(1/2)), covariances with divisor n - 1. With any factor F of
    a covariance, C = F^T F, the trace of the root is the sum of the singular values of F_1 F_2^T: no root of a matrix
    that rounding has made asymmetric, nothing added to diagonals, exact with fewer images than features.

    Biased upwards, by about c / n for samples of one law: only values of equal n can be compared.

    Args:
        a, b: (n, d), (m, d), 2 or more of each.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return _squared_distance(a.mean(axis=0), _factor_of_samples(a), b.mean(axis=0), _factor_of_samples(b))


def frechet_of_moments(mean_a: Floats, covariance_a: Floats, mean_b: Floats, covariance_b: Floats) -> float:
    """Squared Fréchet distance of two Gaussians.

    Args:
        mean_a, mean_b: (d,).
        covariance_a, covariance_b: (d, d), divisor n - 1.
    """
    return _squared_distance(mean_a, _factor_of_covariance(covariance_a), mean_b, _factor_of_covariance(covariance_b))


def extrapolated(sizes: Sequence[int] | NDArray[np.int64], distances: Sequence[float] | Floats) -> float:
    """Squared distance at infinitely many images: intercept of least squares of d^2 on 1 / n (Chong & Forsyth 2020).

    Most of the bias is gone, and the value may be negative.

    Args:
        sizes: numbers of images n, two or more different ones, for instance five from half of all images to all.
        distances: squared distances at these.
    """
    inverse = 1 / np.asarray(sizes, dtype=np.float64)
    return float(np.polynomial.polynomial.polyfit(inverse, np.asarray(distances), 1)[0])


def _squared_distance(mean_a: Floats, factor_a: Floats, mean_b: Floats, factor_b: Floats) -> float:
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


def disagreement(pred_a: Ints, pred_b: Ints) -> float:
    """Share of the images, (n,) predictions each, on which two classifiers differ: their loss, with the 0-1 loss."""
    return float(np.mean(pred_a != pred_b))


def concept(f_tr_on_p: Ints, f_te_on_p: Ints, f_tr_on_q: Ints, f_te_on_q: Ints) -> dict[str, float]:
    """Concept shift: disagreement of the classifiers of either side (equation 2).

    Args:
        f_tr_on_p, f_te_on_p: (n_p,) predictions for images of p of the classifiers fitted on p and on q.
        f_tr_on_q, f_te_on_q: (n_q,) the same for images of q; no classifier has learned from these images.

    Returns:
        ``l_tr``, ``l_te``: disagreement on p and on q; ``min``, ``max`` of both.
    """
    l_tr, l_te = disagreement(f_tr_on_p, f_te_on_p), disagreement(f_tr_on_q, f_te_on_q)
    return {"l_tr": l_tr, "l_te": l_te, "min": min(l_tr, l_te), "max": max(l_tr, l_te)}


def discrepancy(on_p: Ints, on_q: Ints, rng: np.random.Generator) -> float:
    """Covariate shift: the largest difference between p and q in how often two classifiers disagree (equation 1).

    The supremum is over the given classifiers. Their pair, and the sign of the difference, is chosen on a random half
    of the images, and the value is taken on the other: the largest of several noisy values is too large. So the result
    may be slightly negative where there is no shift.

    Args:
        on_p, on_q: (C, n_p), (C, n_q) predictions of C >= 2 classifiers for images that none has learned from; 2 or
            more of either side.
        rng: source of the halves.
    """
    on_p, on_q = (side[:, rng.permutation(side.shape[1])] for side in (on_p, on_q))
    half_p, half_q = on_p.shape[1] // 2, on_q.shape[1] // 2
    chosen = _all_disagreements(on_p[:, :half_p]) - _all_disagreements(on_q[:, :half_q])
    a, b = np.unravel_index(np.abs(chosen).argmax(), chosen.shape)
    apart = disagreement(on_p[a, half_p:], on_p[b, half_p:]) - disagreement(on_q[a, half_q:], on_q[b, half_q:])
    return float(np.sign(chosen[a, b]) * apart)


def _all_disagreements(predictions: Ints) -> NDArray[np.float64]:
    """(C, C) disagreement of every two of C classifiers."""
    return np.array([(predictions != others).mean(axis=1) for others in predictions])

"""Distances between two sets of features: earth mover's distance, maximum mean discrepancy, the index NI.

Ye et al. 2022, "OoD-Bench", table 3, prints all three beside its own quantities without saying how they were computed.
Here: on standardized features of balanced sides. None of them is 0 for two samples of one distribution.
"""

from __future__ import annotations

from collections.abc import Callable
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


def permutation_p(
    statistic: Callable[[Any, Ints], Floats], z: Any, env: Ints, y: Ints, repeats: int, rng: np.random.Generator
) -> float:
    """Share of permutations in which the sides are as far apart as they are: (1 + #{>= observed}) / (repeats + 1).

    Sides are permuted within each class, so that only the features of a class are compared.

    Args:
        statistic: of z and (R, N) sides, (R,) distances; for instance
            ``lambda kernel, env: mmd2_of_kernel(kernel, env)[1]``.
        z: what the statistic takes: features, or a kernel matrix that is computed once.
        env: (N,) side of each point.
        y: (N,) class of each point.
        repeats: permutations drawn.
        rng: source of the draws.
    """
    drawn = np.tile(env, (repeats + 1, 1))  # the first line stays as observed
    for label in np.unique(y):
        drawn[1:, y == label] = rng.permuted(drawn[1:, y == label], axis=1)
    observed, *others = statistic(z, drawn)
    # equal lines may differ by rounding
    reached = np.asarray(others) >= observed - 1e-12 * abs(observed)
    return float((1 + reached.sum()) / (repeats + 1))

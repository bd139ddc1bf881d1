"""Diversity and correlation shift from kernel densities (Ye et al. 2022, "OoD-Bench", definition 1
and algorithm 2).

The features are those of a classifier that tells p from q, standardized. The densities of both
sides and of their classes are estimated at points (:func:`densities_at`), and thresholds turn them
into shifts (:func:`from_densities`), by the formula of definition 1 and by that of the paper's
released code, with squared differences of roots (``plus``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import DataError

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

RANK = 1e-10  # directions with a smaller share of the largest variance count as constant
BLOCK = 512  # points at a time: bounds memory

CLASS_WEIGHTS: Mapping[str, Callable[[Floats], Floats]] = {
    "counts": lambda counts: counts / counts.sum(),
    "uniform": lambda counts: np.full(len(counts), 1 / max(1, len(counts))),
}
MIXTURE = "mixture"

# mean shift that calibrated thresholds leave to null pairs, of either kind
LEAST_NULL_MEAN = 0.005
MOST_NULL_MEAN = 0.01
# of eps_div and eps_cor: the end of the range from 0 that is bisected, and whether the estimate
# rises with its threshold
LARGEST_THRESHOLDS = (1e-6, 1.0)
RISES_WITH_THRESHOLD = (True, False)
ROUNDS = 20  # of bisection


class SingularError(ValueError):
    """Features that have no density: fewer points than dimensions, or points in a plane."""


class GaussianKDE:
    """Density of a sample: a Gaussian about each of its n points, with one covariance.

    That covariance is the sample's (divisor n - 1, full matrix) times the square of Scott's factor
    n^(-1/(m+4)), as in ``scipy.stats.gaussian_kde``. Far from all points, where the density
    underflows, its logarithm stays exact.

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
        # whitened about it: rounding grows with the squared distance from 0
        self._center = self.features.mean(axis=0)
        self._whitened = self._white(self.features)
        self._squares = np.square(self._whitened).sum(axis=1)
        self._constant = (
            math.log(n) + m / 2 * math.log(2 * math.pi) + float(np.log(self._root.diagonal()).sum())
        )

    def log_density(self, points: Floats) -> Floats:
        """Compute the (M,) logarithms of the density at (M, m) points."""
        return np.concatenate(
            [self._log_density(points[i : i + BLOCK]) for i in range(0, len(points), BLOCK)]
        )

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw n points, (n, m), from this density."""
        centers = self.features[rng.integers(len(self.features), size=n)]
        return np.asarray(centers + rng.standard_normal(centers.shape) @ self._root.T)

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


def standardized(z_p: Floats, z_q: Floats) -> tuple[Floats, Floats]:
    """Standardize both samples: every coordinate of their union gets mean 0 and variance 1 (divisor
    N).

    Directions without variance have no density: constant coordinates are dropped, and where others
    are collinear the samples are projected on the directions that vary (variance at least 1e-10 of
    the largest).

    Args:
        z_p, z_q: (n_p, m), (n_q, m).

    Returns:
        The samples, (n_p, rank) and (n_q, rank); the rank is m unless something was dropped.

    Raises:
        DataError: all features are equal.
    """
    union = np.concatenate([z_p, z_q]).astype(np.float64)
    union = union[:, np.ptp(union, axis=0) > 0]
    if not union.shape[1]:
        raise DataError(
            "all images have the same features; use another backbone or other initial weights"
        )
    union = (union - union.mean(axis=0)) / union.std(axis=0)
    variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(union, rowvar=False)))
    varying = variances >= RANK * variances[-1]
    if not varying.all():
        union = union @ directions[:, varying]
    return union[: len(z_p)], union[len(z_p) :]


@dataclass(frozen=True)
class DensitiesAtPoints:
    """Logarithms of all densities at M points; thresholds are applied to them afterwards."""

    log_p: Floats  #: (M,)
    log_q: Floats  #: (M,)
    log_proposal: Floats  #: (M,) of the density that the points were drawn from
    log_p_class: Floats  #: (K', M) of the classes' features
    log_q_class: Floats  #: (K', M)
    weights: Floats  #: (K',) of the classes, summing to 1
    classes: Ints  #: (K',) labels of the classes that have densities on both sides
    failed: Ints  #: labels of the others: too few images for the dimensions, or features in a plane


@dataclass(frozen=True)
class _Side:
    """The density of one side and those of its classes."""

    whole: GaussianKDE | None  #: None: the side is the mixture of its classes
    classes: list[GaussianKDE]
    shares: Floats

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        if self.whole is not None:
            return self.whole.draw(n, rng)
        counts = rng.multinomial(n, self.shares)
        return np.concatenate(
            [kde.draw(count, rng) for kde, count in zip(self.classes, counts, strict=True)]
        )

    def log_densities(self, points: Floats) -> tuple[Floats, Floats]:
        """Compute the log densities of the side, (M,), and of its classes, (K', M), at (M, m)
        points.
        """
        classes = np.array([kde.log_density(points) for kde in self.classes]).reshape(
            -1, len(points)
        )
        if self.whole is not None:
            return self.whole.log_density(points), classes
        return np.logaddexp.reduce(classes + np.log(self.shares)[:, None], axis=0), classes


def densities_at(
    z_p: Floats,
    y_p: Ints,
    z_q: Floats,
    y_q: Ints,
    rng: np.random.Generator | None = None,
    *,
    n_points: int = 10_000,
    density: str = "separate",
    proposal: str = "pooled",
    class_weights: str = "counts",
    grid: tuple[Floats, Floats] | None = None,
) -> DensitiesAtPoints:
    """Estimate the densities of both sides and of their classes, at points drawn from the proposal.

    Args:
        z_p, y_p, z_q, y_q: (n_p, m), (n_p,), (n_q, m), (n_q,) standardized features and labels of
            balanced sides.
        rng: source of the draws; needed without ``grid``.
        n_points: points drawn, M.
        density: that of a side: ``separate``, an estimate of its own; ``mixture``, the weighted
            mean of its classes'.
        proposal: density that points are drawn from: ``pooled``, that of the union; ``mixture``, (p
            + q) / 2.
        class_weights: weight of a class in the sums: ``counts``, its share of the images;
            ``uniform``, 1 / K'.
        grid: (M, m) points in place of draws, and (M,) the density that they come from.

    Raises:
        DataError: a side has no density.
    """
    fits, failed = _class_fits(z_p, y_p, z_q, y_q)
    classes = np.array(list(fits), dtype=np.int64)
    counts = np.array(
        [(y_p == label).sum() + (y_q == label).sum() for label in classes], dtype=np.float64
    )
    shares = CLASS_WEIGHTS[class_weights](counts)
    if density == MIXTURE and not fits:
        raise DataError(
            "no class has enough images for a density of its features; use more images or "
            "density=separate"
        )
    whole_p = None if density == MIXTURE else _whole(z_p, "p")
    whole_q = None if density == MIXTURE else _whole(z_q, "q")
    side_p = _Side(whole_p, [fit_p for fit_p, _ in fits.values()], shares)
    side_q = _Side(whole_q, [fit_q for _, fit_q in fits.values()], shares)
    log_proposal = None
    if grid is not None:
        points = grid[0]
        log_proposal = np.log(grid[1])
    elif rng is None:
        raise ValueError(
            "a generator is needed to draw points, or points with the density that they were "
            "drawn from"
        )
    elif proposal == MIXTURE:
        points = np.concatenate(
            [side_p.draw(n_points // 2, rng), side_q.draw(n_points - n_points // 2, rng)]
        )
    else:
        union = _whole(np.concatenate([z_p, z_q]), "p and q together")
        points = union.draw(n_points, rng)
        log_proposal = union.log_density(points)
    log_p, log_p_class = side_p.log_densities(points)
    log_q, log_q_class = side_q.log_densities(points)
    if log_proposal is None:
        log_proposal = np.logaddexp(log_p, log_q) - math.log(2)
    return DensitiesAtPoints(
        log_p, log_q, log_proposal, log_p_class, log_q_class, shares, classes, failed
    )


def _class_fits(
    z_p: Floats, y_p: Ints, z_q: Floats, y_q: Ints
) -> tuple[dict[int, tuple[GaussianKDE, GaussianKDE]], Ints]:
    """Fit a density to every class in p and in q; list apart the classes that lack one of them."""
    fits = {}
    failed = []
    for label in np.union1d(y_p, y_q):
        try:
            fits[int(label)] = GaussianKDE(z_p[y_p == label]), GaussianKDE(z_q[y_q == label])
        except SingularError:
            failed.append(int(label))
    return fits, np.array(failed, dtype=np.int64)


def _whole(z: Floats, name: str) -> GaussianKDE:
    try:
        return GaussianKDE(z)
    except SingularError as error:
        raise DataError(
            f"the features of {name} have no density: {error}; use more images, or an estimator "
            "without densities"
        ) from None


@dataclass(frozen=True)
class DensityShift:
    """Shift between p and q, symmetric in them; sums over drawn points may come out above 1."""

    div: float  #: diversity shift, definition 1
    cor: float  #: correlation shift, definition 1; NaN where no class has densities
    div_plus: float
    cor_plus: float  #: NaN where no class has densities
    by_class: Floats  #: (K',) correlation shift of each class; cor is their weighted mean
    in_s: float  #: share of the points where a density counts as zero
    #: share of the points where correlation shift is taken; where it is tiny, cor means nothing
    in_t: float
    #: effective sample size of the points for integrals over (p + q) / 2 (Kish 1965), at most M
    ess: float
    classes_used: Ints  #: (K',)
    classes_failed: Ints  #: left out: too few images for the dimensions, or features in a plane


def from_densities(d: DensitiesAtPoints, eps_div: float, eps_cor: float) -> DensityShift:
    """Compute the shift from densities at points, by importance sampling.

    Diversity shift is taken where a density is below ``eps_div`` (the set S), correlation shift
    where both are above ``eps_cor`` (T); what lies between counts for neither.

    Args:
        d: densities at M points.
        eps_div, eps_cor: the thresholds; unit of the densities.
    """
    with np.errstate(divide="ignore"):
        log_div = np.log(eps_div)  # -inf for 0: no point
        log_cor = np.log(eps_cor)  # -inf for 0: every point
    lower = np.minimum(d.log_p, d.log_q)
    in_s = lower < log_div
    in_t = lower > log_cor
    # in units of the proposal before any exponential: p itself may underflow
    p = np.exp(d.log_p - d.log_proposal)
    q = np.exp(d.log_q - d.log_proposal)
    half_ratio = (d.log_q - d.log_p) / 2
    # outside T a ratio of densities may overflow, so those points are left out before the
    # exponential p(z | y) sqrt(q / p)
    p_class = np.exp(np.where(in_t, d.log_p_class + half_ratio - d.log_proposal, -np.inf))
    q_class = np.exp(np.where(in_t, d.log_q_class - half_ratio - d.log_proposal, -np.inf))
    by_class = np.abs(p_class - q_class).mean(axis=1) / 2
    by_class_plus = np.square(np.sqrt(p_class) - np.sqrt(q_class)).mean(axis=1) / 2
    mixture = (p + q) / 2
    return DensityShift(
        div=float(np.mean(in_s * np.abs(p - q))) / 2,
        cor=_weighted(by_class, d.weights),
        div_plus=float(np.mean(in_s * np.square(np.sqrt(p) - np.sqrt(q)))) / 2,
        cor_plus=_weighted(by_class_plus, d.weights),
        by_class=by_class,
        in_s=float(in_s.mean()),
        in_t=float(in_t.mean()),
        ess=float(mixture.sum() ** 2 / np.square(mixture).sum()),
        classes_used=d.classes,
        classes_failed=d.failed,
    )


def _weighted(by_class: Floats, weights: Floats) -> float:
    return float(by_class @ weights) if len(by_class) else float("nan")


def calibrated_thresholds(nulls: Sequence[DensitiesAtPoints]) -> tuple[float, float]:
    """Find eps_div and eps_cor by bisection, in at most 20 rounds, so that null pairs show next to
    no shift.

    As the released code of Ye et al. 2022 does: the estimate of null pairs, by the formula with
    squared differences of roots whatever formula is reported, shall be small but not 0. Thresholds
    that do not get there stay as they are.

    Args:
        nulls: densities at points of one or more null pairs; they are computed once, only
            thresholds change.

    Raises:
        DataError: no null pair, or one without any class that has densities.
    """
    if not nulls or not all(len(pair.classes) for pair in nulls):
        raise DataError(
            "null pairs without densities of classes cannot calibrate; use more images or fixed "
            "thresholds"
        )
    ranges = [[0.0, largest] for largest in LARGEST_THRESHOLDS]
    for _ in range(ROUNDS):
        thresholds = [sum(ends) / 2 for ends in ranges]
        eps_div, eps_cor = thresholds
        shifts = [from_densities(pair, eps_div, eps_cor) for pair in nulls]
        mean_div = np.mean([shift.div_plus for shift in shifts])
        mean_cor = np.mean([shift.cor_plus for shift in shifts])
        missed = False
        for k, mean in enumerate((mean_div, mean_cor)):
            if LEAST_NULL_MEAN <= mean <= MOST_NULL_MEAN:
                continue
            missed = True
            too_low = bool(mean < LEAST_NULL_MEAN)
            end = 0 if too_low == RISES_WITH_THRESHOLD[k] else 1
            ranges[k][end] = thresholds[k]
        if not missed:
            break
    return eps_div, eps_cor

"""Distances between the features of two sides, and of pretraining images and every environment.

None is 0 for two samples of one distribution. Earth mover's distance, maximum mean discrepancy and
the index NI: Ye et al. 2022, "OoD-Bench", table 3, prints all three without saying how they were
computed; here, on standardized features of balanced sides. Fréchet distance: Heusel et al. 2017,
equation 6; Yu et al. 2024.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr, model_validator

from dgbench.errors import ConfigError, DataError
from dgbench.records.files import read_arrays
from dgbench.records.shift_rows import HALVES, NO_NULL
from dgbench.shift.estimators import EstimatedValues, Estimator, Fitted, PairSample
from dgbench.validation import Count0, Refusal

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
FEWEST_IMAGES = 100  # images, below which the bias is larger than any distance of interest
SIZES = 5  # numbers of images between half of them and all, equally far apart in 1 / n
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # factors of the kernel's width


def emd(a: Floats, b: Floats) -> float:
    """Compute the earth mover's distance (Wasserstein-1, Euclidean) of two samples of equal size.

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
    """Compute the median Euclidean distance of all pairs i < j of both samples together, a kernel's
    usual width.
    """
    from scipy.spatial.distance import pdist

    return float(np.median(pdist(np.concatenate([a, b]))))


def kernel_matrix(a: Floats, b: Floats, sigma: float) -> Floats:
    """Compute exp(-|x - x'|^2 / (2 sigma^2)) of both samples together: (n + m, n + m), those of a
    first.

    Raises:
        DataError: the width is 0.
    """
    if not sigma > 0:
        raise DataError(
            f"a kernel of width {sigma} compares nothing, most features are equal; "
            "use another backbone, other initial weights, or drop this distance"
        )
    union = np.concatenate([a, b]).astype(np.float64)
    union -= union.mean(axis=0)  # the products below lose digits far from 0
    squares = np.square(union).sum(axis=1)
    # one product: ten times as fast as pair by pair
    distances = squares[:, None] + squares - 2 * union @ union.T
    return np.asarray(np.exp(distances.clip(0) / (-2 * sigma**2)))


def mmd2(a: Floats, b: Floats, sigma: float) -> tuple[float, float]:
    """Compute the squared maximum mean discrepancy with a Gaussian kernel (Gretton et al. 2012),
    biased and unbiased.

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
    """Average :func:`mmd2`, biased and unbiased, over widths from a quarter of sigma to 4 sigma."""
    biased, unbiased = np.mean([mmd2(a, b, sigma * factor) for factor in WIDTHS], axis=0)
    return float(biased), float(unbiased)


def mmd2_of_kernel(kernel: Floats, env: Ints) -> tuple[Floats, Floats]:
    """Compute the squared maximum mean discrepancy for R assignments of sides, biased and unbiased,
    (R,) each.

    Args:
        kernel: (N, N) kernel values of all points.
        env: (R, N) side of each point, 0 or 1.
    """
    first, second = ((env == side).astype(np.float64) for side in (0, 1))
    sums_first = first @ kernel  # (R, N)
    sums_second = second @ kernel
    n = first.sum(axis=1)
    m = second.sum(axis=1)
    between = 2 * (sums_first * second).sum(axis=1) / (n * m)
    within_first = (sums_first * first).sum(axis=1)
    within_second = (sums_second * second).sum(axis=1)
    same_first = first @ kernel.diagonal()
    same_second = second @ kernel.diagonal()
    biased = within_first / n**2 + within_second / m**2 - between
    unbiased = (
        (within_first - same_first) / (n * (n - 1))
        + (within_second - same_second) / (m * (m - 1))
        - between
    )
    return biased, unbiased


def ni(a: Floats, b: Floats) -> float:
    """Compute the non-i.i.d. index, which is 0 without a difference of means.

    It is the norm of the means' difference, in deviations (He et al. 2020, definition 1).

    The deviation of a coordinate is that of both samples together, divisor N; constant coordinates
    are left out.

    Args:
        a, b: (n, d), (m, d).
    """
    union = np.concatenate([a, b]).astype(np.float64)
    varying = np.ptp(union, axis=0) > 0
    difference = union[: len(a)].mean(axis=0) - union[len(a) :].mean(axis=0)
    return float(np.linalg.norm(difference[varying] / union.std(axis=0)[varying]))


def ni_by_class(a: Floats, y_a: Ints, b: Floats, y_b: Ints) -> tuple[float, dict[int, float]]:
    """Average :func:`ni` over classes, weighted by their images, and return it with the value of
    each class.

    Args:
        a, b: (n, d), (m, d) features.
        y_a, y_b: (n,), (m,) labels; a class of one side only is left out.
    """
    values = {
        int(label): ni(a[y_a == label], b[y_b == label]) for label in np.intersect1d(y_a, y_b)
    }
    counts = [int((y_a == label).sum() + (y_b == label).sum()) for label in values]
    return float(np.average(list(values.values()), weights=counts)), values


def permutation_p(
    kernel: Floats, env: Ints, y: Ints, repeats: int, rng: np.random.Generator
) -> float:
    """Compute the share of permutations with an unbiased discrepancy as large: (1 + #{>= observed})
    / (repeats + 1).

    Sides are permuted within each class, so that only the features of a class are compared.

    Args:
        kernel: (N, N), see :func:`kernel_matrix`.
        env: (N,) side of each point.
        y: (N,) class of each point.
        repeats: permutations drawn.
        rng: source of the draws.
    """
    sides = np.tile(env, (repeats + 1, 1))  # the first line stays as observed
    for label in np.unique(y):
        sides[1:, y == label] = rng.permuted(sides[1:, y == label], axis=1)
    observed, *permuted = mmd2_of_kernel(kernel, sides)[1]
    # equal lines may differ by rounding
    reached = np.asarray(permuted) >= observed - 1e-12 * abs(observed)
    return float((1 + reached.sum()) / (repeats + 1))


def frechet(a: Floats, b: Floats) -> float:
    """Compute the squared Fréchet distance of two samples; unit: that of the features, squared.

    d^2 = |mean_1 - mean_2|^2 + Tr(C_1 + C_2 - 2 (C_1 C_2)^(1/2)), covariances with divisor n - 1.
    With any factor F of a covariance, C = F^T F, the trace of the root is the sum of the singular
    values of F_1 F_2^T: no root of a matrix that rounding has made asymmetric, nothing added to
    diagonals, exact with fewer images than features.

    Biased upwards, by about c / n for samples of one law: only values of equal n can be compared.

    Args:
        a, b: (n, d), (m, d), 2 or more of each.
    """
    a = np.asarray(a, dtype=np.float64)
    b = np.asarray(b, dtype=np.float64)
    return _squared_distance(
        a.mean(axis=0), _factor_of_samples(a), b.mean(axis=0), _factor_of_samples(b)
    )


def frechet_of_moments(
    mean_a: Floats, covariance_a: Floats, mean_b: Floats, covariance_b: Floats
) -> float:
    """Compute the squared Fréchet distance of two Gaussians.

    Args:
        mean_a, mean_b: (d,).
        covariance_a, covariance_b: (d, d), divisor n - 1.
    """
    return _squared_distance(
        mean_a, _factor_of_covariance(covariance_a), mean_b, _factor_of_covariance(covariance_b)
    )


def extrapolated(
    sizes: Sequence[int] | NDArray[np.int64], distances: Sequence[float] | Floats
) -> float:
    """Estimate d^2 at infinitely many images: intercept of least squares of d^2 on 1 / n (Chong &
    Forsyth 2020).

    Most of the bias is gone, and the value may be negative.

    Args:
        sizes: numbers of images n, two or more different ones, for instance five from half of all
            images to all.
        distances: squared distances d^2 at these.
    """
    inverse = 1 / np.asarray(sizes, dtype=np.float64)
    return float(np.polynomial.polynomial.polyfit(inverse, np.asarray(distances), 1)[0])


def _squared_distance(mean_a: Floats, factor_a: Floats, mean_b: Floats, factor_b: Floats) -> float:
    traces = np.square(factor_a).sum() + np.square(factor_b).sum()
    root_trace = np.linalg.svd(factor_a @ factor_b.T, compute_uv=False).sum()
    # rounding may make the distance of equal samples negative
    return max(0.0, float(np.square(mean_a - mean_b).sum() + traces - 2 * root_trace))


def _factor_of_samples(features: Floats) -> Floats:
    factor = (features - features.mean(axis=0)) / np.sqrt(len(features) - 1)
    n, d = factor.shape
    # the triangle is smaller, with one product
    return np.asarray(np.linalg.qr(factor, mode="r")) if n > d else factor


def _factor_of_covariance(covariance: Floats) -> Floats:
    variances, directions = np.linalg.eigh(covariance)
    return np.asarray(np.sqrt(variances.clip(0))[:, None] * directions.T)


class DistanceEstimator(Estimator):
    """Table 3 of Ye et al. (2022), which gives neither features nor kernels: ours are standardized
    features.

    Keys as in ``conf/estimator/distances.yaml``, where each is explained.
    """

    key = "estimator.distances"
    kinds = ("frozen",)

    name: str = "distances"
    max_images: Annotated[int, Field(ge=4), Refusal("is not an integer >= 4", "give one")] = 500
    permutations: Count0 = 200
    mean_over_widths: Annotated[bool, Refusal("is unknown", "choose true or false")] = False

    def estimate(self, sample: PairSample, fitted: Sequence[Fitted]) -> EstimatedValues:
        rng = sample.rng("images")
        rows_p, rows_q = (
            rng.permutation(len(side))[: self.max_images] for side in (sample.p, sample.q)
        )
        a = sample.features(sample.p)[rows_p]
        b = sample.features(sample.q)[rows_q]
        y_a = sample.y_p[rows_p]
        y_b = sample.y_q[rows_q]
        union = np.concatenate([a, b])
        std = union.std(0)
        varies = std > 1e-12 * (1 + np.abs(union).max())
        a, b = ((side[:, varies] - union.mean(0)[varies]) / std[varies] for side in (a, b))
        sigma = median_distance(a, b)
        kernel = kernel_matrix(a, b, sigma)
        sides = np.repeat([0, 1], [len(a), len(b)])
        biased, unbiased = (float(values[0]) for values in mmd2_of_kernel(kernel, sides[None]))
        if self.mean_over_widths:
            biased, unbiased = mmd2_mean_over_widths(a, b, sigma)
        index, by_class = ni_by_class(a, y_a, b, y_b)
        values = {
            "emd": emd(a, b),
            "mmd2": unbiased,
            "mmd2_biased": biased,
            "ni": index,
            "ni_pooled": ni(a, b),
        }
        if self.permutations and sample.null == NO_NULL:
            values["mmd2_p"] = permutation_p(
                kernel,
                sides,
                np.concatenate([y_a, y_b]),
                self.permutations,
                sample.rng("permutations"),
            )
        values |= {f"ni:{sample.names[label]}": value for label, value in by_class.items()}
        return EstimatedValues(
            values, {"sigma": sigma, "dimensions": float(varies.sum()), "images": float(len(a))}
        )


class FrechetEstimator(Estimator):
    """|mu_1 - mu_2|^2 + Tr(S_1 + S_2 - 2 (S_1 S_2)^(1/2)) of features, biased upwards by about c /
    n.

    Environments are therefore compared at one number of images n, and extrapolated to infinitely
    many. Values of other features cannot be compared, nor with the FID, which needs the Inception
    network it is defined by.

    Args:
        name: of the estimator in the rows.
        reference: folder of pretraining images, searched recursively, or an ``.npz`` file with
            ``mean`` (m,), ``cov`` (m, m), ``n`` and ``features``, the text that says of what
            network they are.
        n: images of every environment; None is those of the smallest.
    """

    key = "estimator.frechet"
    kinds = ("frozen",)
    against_reference = True

    name: str = "frechet"
    reference: str | None = None
    n: Annotated[
        Annotated[int, Field(gt=FEWEST_IMAGES)] | None,
        Refusal(f"is not an integer >= {FEWEST_IMAGES + 1}", "give one"),
    ] = None

    #: mean (m,) and covariance (m, m), and of how many images
    _reference: tuple[Floats, Floats, int] = PrivateAttr()
    _common: int = PrivateAttr()  #: images of every environment that are compared

    @model_validator(mode="after")
    def _reference_is_there(self) -> Self:
        if self.reference is None:
            raise ConfigError(
                "estimator=frechet compares with pretraining images; name a folder of images, or "
                "an .npz file of their moments, with estimator.frechet.reference=PATH"
            )
        if not Path(self.reference).exists():
            raise ConfigError(
                f"estimator.frechet.reference={self.reference} does not exist; give a folder or a "
                "file"
            )
        return self

    def prepared(
        self, features_of: Callable[[Sequence[Path]], np.ndarray], features: str, smallest: int
    ) -> Self:
        estimator = self.model_copy()
        estimator._common = min(self.n or smallest, smallest)
        estimator._reference = _reference(Path(str(self.reference)), features_of, features)
        return estimator

    def estimate(self, sample: PairSample, fitted: Sequence[Fitted]) -> EstimatedValues:
        mean, cov, n_reference = self._reference
        z = sample.features(sample.q)
        n = min(len(z), self._common)
        if n <= FEWEST_IMAGES:
            raise DataError(
                f"{n} images are too few for a Fréchet distance; give more than {FEWEST_IMAGES}"
            )
        rng = sample.rng("images")
        flags = [f"fewer images ({n}) than features ({z.shape[1]})"] if n <= z.shape[1] else []
        if sample.null == HALVES:
            return EstimatedValues(
                {"d2": frechet(sample.features(sample.p), z)}, {"n": float(len(z))}, tuple(flags)
            )
        sizes = np.array([round(1 / inverse) for inverse in np.linspace(2 / n, 1 / n, SIZES)])
        order = rng.permutation(len(z))
        distances = [frechet_of_moments(mean, cov, *_moments(z[order[:size]])) for size in sizes]
        values = {"d2": distances[-1], "d2_inf": extrapolated(sizes, distances)}
        return EstimatedValues(
            values, {"n": float(n), "n_reference": float(n_reference)}, tuple(flags)
        )


def _reference(
    path: Path, features_of: Callable[[Sequence[Path]], np.ndarray], features: str
) -> tuple[Floats, Floats, int]:
    if path.is_dir():
        files = sorted(_pictures_below(path))
        if len(files) <= FEWEST_IMAGES:
            raise DataError(
                f"{path} holds {len(files)} images, too few for moments; give more than "
                f"{FEWEST_IMAGES}"
            )
        z = features_of(files)
        return *_moments(z), len(z)
    try:
        file = read_arrays(path)
        network = str(file["features"])
        mean = file["mean"]
        cov = file["cov"]
        n = int(file["n"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} holds no moments ({error}); it needs mean, cov, n and features"
        ) from error
    if network != features:
        raise DataError(
            f"{path} holds moments of {network}, and these are features of {features}; make them "
            "anew"
        )
    return mean, cov, n


def _pictures_below(folder: Path) -> Iterator[Path]:
    """Find the image files below a folder; links are followed, each folder counts once."""
    visited = set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        real = os.path.realpath(place)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        yield from (Path(place, name) for name in names if name.lower().endswith(PICTURES))


def _moments(z: Floats) -> tuple[Floats, Floats]:
    """Compute the mean (m,) and the covariance (m, m), divisor n - 1, of features (n, m)."""
    return z.mean(0), np.cov(z, rowvar=False)

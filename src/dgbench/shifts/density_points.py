"""Densities of two sides and of their classes, estimated at points (Ye et al. 2022, "OoD-Bench", algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import ConfigError, DataError
from dgbench.shifts.kernel_density import GaussianKDE, SingularError

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

FORMULAS = {"ye2022": ("div", "cor"), "hellinger": ("div_plus", "cor_plus")}  # formula -> the values that it means
CLASS_WEIGHTS: Mapping[str, Callable[[Floats], Floats]] = {
    "counts": lambda counts: counts / counts.sum(),
    "uniform": lambda counts: np.full(len(counts), 1 / max(1, len(counts))),
}
SEPARATE, MIXTURE, POOLED = "separate", "mixture", "pooled"
_CHOICES = {
    "formula": tuple(FORMULAS),
    "density": (SEPARATE, MIXTURE),
    "proposal": (POOLED, MIXTURE),
    "class_weights": tuple(CLASS_WEIGHTS),
}


@dataclass(frozen=True)
class DensityOptions:
    """How densities become numbers; the defaults are those of the paper's released code, with the paper's formula.

    Raises:
        ConfigError: a choice that does not exist.
    """

    formula: str = "ye2022"  #: which values are the estimate, see FORMULAS; both are computed
    eps_div: float = 1e-12  #: a density below it counts as zero; unit 1 / volume of standardized features
    eps_cor: float = 5e-4  #: correlation shift is taken where both densities are above it; same unit
    points: int = 10_000  #: points drawn for the integrals
    density: str = SEPARATE  #: of a side: ``separate``, its own estimate; ``mixture``, its classes' weighted
    proposal: str = POOLED  #: points come from: ``pooled``, the estimate of the union; ``mixture``, (p + q) / 2
    class_weights: str = "counts"  #: of a class in the sums: ``counts``, its share of the images; ``uniform``

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ConfigError(f"{name}={value} is unknown; use {name}={f' or {name}='.join(choices)}")


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
        return np.concatenate([kde.draw(count, rng) for kde, count in zip(self.classes, counts, strict=True)])

    def log_densities(self, points: Floats) -> tuple[Floats, Floats]:
        """(M,) of the side, (K', M) of its classes."""
        classes = np.array([kde.log_density(points) for kde in self.classes]).reshape(-1, len(points))
        if self.whole is not None:
            return self.whole.log_density(points), classes
        return np.logaddexp.reduce(classes + np.log(self.shares)[:, None], axis=0), classes


def densities_at(
    z_p: Floats,
    y_p: Ints,
    z_q: Floats,
    y_q: Ints,
    options: DensityOptions,
    points: Floats | None = None,
    weights: Floats | None = None,
    rng: np.random.Generator | None = None,
) -> DensitiesAtPoints:
    """Estimate the densities of both sides and of their classes, at points drawn from the proposal.

    Args:
        z_p, y_p, z_q, y_q: (n_p, m), (n_p,), (n_q, m), (n_q,) standardized features and labels of balanced sides.
        options: which densities, and which points.
        points: (M, m) in place of draws.
        weights: (M,) density that these points were drawn from; needed with ``points``.
        rng: source of the draws; needed without ``points``.

    Raises:
        DataError: a side has no density.
        ValueError: neither points with their density nor a generator.
    """
    fits, failed = _class_fits(z_p, y_p, z_q, y_q)
    classes = np.array(list(fits), dtype=np.int64)
    counts = np.array([(y_p == label).sum() + (y_q == label).sum() for label in classes], dtype=np.float64)
    shares = CLASS_WEIGHTS[options.class_weights](counts)
    if options.density == MIXTURE and not fits:
        raise DataError("no class has enough images for a density of its features; use more images or density=separate")
    of_p, of_q = (
        _Side(None if options.density == MIXTURE else _whole(z, name), [pair[side] for pair in fits.values()], shares)
        for side, (z, name) in enumerate([(z_p, "p"), (z_q, "q")])
    )
    log_proposal = None
    if points is not None and weights is not None:
        log_proposal = np.log(weights)
    elif points is not None or rng is None:
        raise ValueError("points with the density that they were drawn from are needed, or a generator")
    elif options.proposal == MIXTURE:
        from_p = options.points // 2
        points = np.concatenate([of_p.draw(from_p, rng), of_q.draw(options.points - from_p, rng)])
    else:
        union = _whole(np.concatenate([z_p, z_q]), "p and q together")
        points = union.draw(options.points, rng)
        log_proposal = union.log_density(points)
    (log_p, log_p_class), (log_q, log_q_class) = of_p.log_densities(points), of_q.log_densities(points)
    if log_proposal is None:
        log_proposal = np.logaddexp(log_p, log_q) - math.log(2)
    return DensitiesAtPoints(log_p, log_q, log_proposal, log_p_class, log_q_class, shares, classes, failed)


def _class_fits(
    z_p: Floats, y_p: Ints, z_q: Floats, y_q: Ints
) -> tuple[dict[int, tuple[GaussianKDE, GaussianKDE]], Ints]:
    """Densities of the classes in p and in q, and the classes that lack one."""
    fits, failed = {}, []
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
            f"the features of {name} have no density: {error}; use more images, or an estimator without densities"
        ) from None

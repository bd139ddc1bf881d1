"""Diversity and correlation shift from kernel densities (Ye et al. 2022, "OoD-Bench", definition 1 and algorithm 2).

The features are those of a classifier that tells p from q, of held-out images only, standardized
(:func:`~dgbench.shifts.kernel_density.standardized`). Two formulas are computed: that of definition 1, and that of the
paper's released code, with squared differences of roots (``plus``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.shifts.density_points import FORMULAS, DensitiesAtPoints, DensityOptions, densities_at

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DensityShift:
    """Shift between p and q, symmetric in them; integrals over drawn points may come out above 1."""

    div: float  #: diversity shift, definition 1
    cor: float  #: correlation shift, definition 1; NaN where no class has densities
    div_plus: float
    cor_plus: float  #: NaN where no class has densities
    by_class: Floats  #: (K',) correlation shift of each class; cor is their weighted mean
    by_class_plus: Floats  #: (K',)
    in_s: float  #: share of the points where a density counts as zero
    in_t: float  #: share of the points where correlation shift is taken; where it is tiny, cor means nothing
    ess: float  #: effective sample size of the points for integrals over (p + q) / 2 (Kish 1965), at most M
    classes_used: Ints  #: (K',)
    classes_failed: Ints  #: left out: too few images for the dimensions, or features in a plane

    def of_formula(self, formula: str) -> tuple[float, float]:
        """Diversity and correlation shift by one of FORMULAS."""
        div, cor = FORMULAS[formula]
        return getattr(self, div), getattr(self, cor)


def shift_by_density(
    z_p: Floats,
    y_p: Ints,
    z_q: Floats,
    y_q: Ints,
    options: DensityOptions,
    points: Floats | None = None,
    weights: Floats | None = None,
    rng: np.random.Generator | None = None,
) -> DensityShift:
    """Shift between two sides; arguments and errors as in :func:`~dgbench.shifts.density_points.densities_at`."""
    densities = densities_at(z_p, y_p, z_q, y_q, options, points, weights, rng)
    return from_densities(densities, options.eps_div, options.eps_cor)


def from_densities(d: DensitiesAtPoints, eps_div: float, eps_cor: float) -> DensityShift:
    """Shift from densities at points, by importance sampling.

    Diversity shift is taken where a density is below ``eps_div`` (the set S), correlation shift where both are above
    ``eps_cor`` (T); what lies between counts for neither.

    Args:
        d: densities at M points.
        eps_div, eps_cor: the thresholds; unit of the densities.
    """
    with np.errstate(divide="ignore"):
        log_div, log_cor = np.log(eps_div), np.log(eps_cor)  # -inf for 0: no point, every point
    lower = np.minimum(d.log_p, d.log_q)
    in_s, in_t = lower < log_div, lower > log_cor
    # in units of the proposal before any exponential: p itself may underflow
    p, q = np.exp(d.log_p - d.log_proposal), np.exp(d.log_q - d.log_proposal)
    half_ratio = (d.log_q - d.log_p) / 2
    # outside T a ratio of densities may overflow, so those points are left out before the exponential
    p_class = np.exp(np.where(in_t, d.log_p_class + half_ratio - d.log_proposal, -np.inf))  # p(z | y) sqrt(q / p)
    q_class = np.exp(np.where(in_t, d.log_q_class - half_ratio - d.log_proposal, -np.inf))
    by_class = np.abs(p_class - q_class).mean(axis=1) / 2
    by_class_plus = np.square(np.sqrt(p_class) - np.sqrt(q_class)).mean(axis=1) / 2
    either = (p + q) / 2
    return DensityShift(
        div=float(np.mean(in_s * np.abs(p - q))) / 2,
        cor=_weighted(by_class, d.weights),
        div_plus=float(np.mean(in_s * np.square(np.sqrt(p) - np.sqrt(q)))) / 2,
        cor_plus=_weighted(by_class_plus, d.weights),
        by_class=by_class,
        by_class_plus=by_class_plus,
        in_s=float(in_s.mean()),
        in_t=float(in_t.mean()),
        ess=float(either.sum() ** 2 / np.square(either).sum()),
        classes_used=d.classes,
        classes_failed=d.failed,
    )


def _weighted(by_class: Floats, weights: Floats) -> float:
    return float(by_class @ weights) if len(by_class) else float("nan")

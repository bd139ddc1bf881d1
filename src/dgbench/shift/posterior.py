"""Diversity and correlation shift from one classifier that predicts side and class together.

With equally many points of p and q, the points are draws of (p + q) / 2, and the posterior P(e, y | z) of the 2K pairs
of side e and class y holds every ratio of densities that the definitions need (Ye et al. 2022, "OoD-Bench", definition
1; the set S of diversity shift is where a ratio of densities is extreme, not where a density is 0). No density is
estimated. This estimator is our own: its values cannot be compared with published ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def shift_by_posterior(posterior: Floats, delta: float) -> dict[str, float]:
    """Shift between p and q, as means over the points; every value is in [0, 1] and symmetric in p and q.

    With a = sum_y P(0, y | z), b = sum_y P(1, y | z), r = a / (a + b), p(y | z) = P(0, y | z) / a, q(y | z) likewise:

    - ``div``: |2r - 1| where min(r, 1 - r) < delta, else 0
    - ``cor``: sqrt(r (1 - r)) * sum_y |p(y | z) - q(y | z)| where min(r, 1 - r) >= delta, else 0
    - ``div_plus``, ``cor_plus``: the same with squared differences of roots, (sqrt(r) - sqrt(1 - r))^2 and
      2 sqrt(r (1 - r)) (1 - sum_y sqrt(p(y | z) q(y | z)))
    - ``tv``: |2r - 1| everywhere. Biased upwards: with finite data it is far from 0 where p = q.
    - ``h2``: squared Hellinger distance of (z, y), which is ``div_plus`` + ``cor_plus`` with both sets everywhere

    Args:
        posterior: (N, 2K), N/2 points of either side; column e * K + y; rows sum to 1.
        delta: points where one side is rarer than this belong to diversity shift, in [0, 1/2].

    Raises:
        ValueError: not such a posterior.
    """
    joint = _sides(posterior)
    side = joint.sum(axis=2)  # (N, 2): r and 1 - r
    root = np.sqrt(side.prod(axis=1))
    # where a side has no mass its classes do not matter: the root is 0
    conditional = joint / np.where(side > 0, side, 1)[:, :, None]
    novel = side.min(axis=1) < delta
    apart = np.abs(side[:, 0] - side[:, 1])
    # 2 (1 - sum_y sqrt(p q)) = sum_y (sqrt(p) - sqrt(q))^2, which rounding cannot make negative
    values = {
        "div": novel * apart,
        "cor": ~novel * root * np.abs(conditional[:, 0] - conditional[:, 1]).sum(axis=1),
        "div_plus": novel * np.square(np.sqrt(side[:, 0]) - np.sqrt(side[:, 1])),
        "cor_plus": ~novel * root * np.square(np.sqrt(conditional[:, 0]) - np.sqrt(conditional[:, 1])).sum(axis=1),
        "tv": apart,
        "h2": np.square(np.sqrt(joint[:, 0]) - np.sqrt(joint[:, 1])).sum(axis=1),
    }
    return {name: float(value.mean()) for name, value in values.items()}


def shift_by_labels(posterior: Floats, env: NDArray[np.int64], y: NDArray[np.int64], delta: float) -> dict[str, float]:
    """Diversity and correlation shift counted on the points' own sides and labels; the posterior only says where.

    Both are integrals of |f| for a difference f of densities of p and q, and |f| = sign(f) f: the sign is the
    posterior's, and the integral of f itself is a mean over points that the classifier did not learn from:

    - ``div``: mean over p of s(z) minus mean over q of s(z), by 2, with s = sign(2r - 1) where min(r, 1 - r) < delta,
      else 0
    - ``cor``: mean over p of sqrt((1 - r) / r) s_y(z) minus mean over q of sqrt(r / (1 - r)) s_y(z), by 2, with
      s_y = sign(p(y | z) - q(y | z)) where min(r, 1 - r) >= delta, else 0

    From s_y its mean under (p(y | z) + q(y | z)) / 2 is taken away, which changes nothing in the integral, since
    p(y | z) - q(y | z) sums to 0, and keeps an error of r out of it, which else would depend on that of the sign.

    A wrong sign makes them smaller. Without shift they scatter about 0, also below it, where the absolute values of
    :func:`shift_by_posterior` are always above: as 2 * accuracy - 1 does for the total variation.

    Args:
        posterior: (N, 2K), as in :func:`shift_by_posterior`, of points that the classifier did not learn from.
        env: (N,) side of each point, 0 or 1; both sides have the same shares of classes.
        y: (N,) class of each point.
        delta: threshold of S, in (0, 1/2].
    """
    joint = _sides(posterior)
    side = joint.sum(axis=2)  # (N, 2)
    r = side[:, 0]
    apart = side.min(axis=1) < delta
    conditional = joint / np.where(side > 0, side, 1)[:, :, None]
    signs = np.sign(conditional[:, 0] - conditional[:, 1])
    sign = signs[np.arange(len(y)), y] - (signs * conditional.mean(axis=1)).sum(axis=1)
    with np.errstate(divide="ignore"):
        weight = np.where(env == 0, np.sqrt(side[:, 1] / r), np.sqrt(r / side[:, 1]))
    terms = {"div": np.where(apart, np.sign(2 * r - 1), 0.0), "cor": np.where(apart, 0.0, weight * sign)}
    return {name: float((term[env == 0].mean() - term[env == 1].mean()) / 2) for name, term in terms.items()}


def balanced_accuracy(posterior: Floats, env: NDArray[np.int64]) -> float:
    """Mean over both sides of the share of their points that are classified correctly; a tie counts as p.

    2 * accuracy - 1 is a lower bound of the total variation of p(x) and q(x), up to the luck of the points.

    Args:
        posterior: (N, 2K), as in :func:`shift_by_posterior`, of points that the classifier did not learn from.
        env: (N,) side of each point, 0 or 1.
    """
    side = _sides(posterior).sum(axis=2)
    predicted = side[:, 0] < side[:, 1]
    return float(np.mean([np.mean(predicted[env == 0] == 0), np.mean(predicted[env == 1] == 1)]))


def _sides(posterior: Floats) -> Floats:
    """As (N, 2, K) in double precision, rows summing to 1 but for double rounding."""
    joint = np.asarray(posterior, dtype=np.float64)
    total = joint.sum(axis=1, keepdims=True)
    if joint.shape[1] % 2 or not (joint.min() >= 0 and np.allclose(total, 1, atol=1e-3)):
        raise ValueError(f"an array {joint.shape} of probabilities of (side, class) is needed, whose rows sum to 1")
    return np.asarray((joint / total).reshape(len(joint), 2, -1))

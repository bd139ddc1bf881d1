"""Shift between distributions that are known: finite tables, and colored digits whose construction gives the table.

Every estimate on a dataset with painted features can be held against these values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import ConfigError

Floats = NDArray[np.floating[Any]]


def exact_shift(p: Floats, q: Floats) -> dict[str, float]:
    """Shift between two joint distributions of class and feature, by sums (Ye et al. 2022, "OoD-Bench", definition 1).

    Args:
        p, q: (K, Z) probabilities of class y and feature z; each sums to 1.

    Returns:
        ``div``, ``cor``, and with squared differences of roots ``div_plus``, ``cor_plus``; over all features squared
        Hellinger distance and total variation of the features, ``h2_z`` and ``tv_z``, and of class and feature,
        ``h2`` and ``tv_yz``.

    Raises:
        ValueError: a table that is no distribution.
    """
    for table in (p, q):
        if not (np.min(table) >= 0 and abs(np.sum(table) - 1) < 1e-9):
            raise ValueError(f"probabilities that sum to 1 are needed, these sum to {np.sum(table)}")
    p_z, q_z = p.sum(axis=0), q.sum(axis=0)
    common = (p_z > 0) & (q_z > 0)
    root = np.sqrt(p_z * q_z)[common]
    p_given, q_given = (p / np.where(p_z > 0, p_z, 1))[:, common], (q / np.where(q_z > 0, q_z, 1))[:, common]
    roots_apart = np.square(np.sqrt(p_z) - np.sqrt(q_z))
    values = {
        "div": np.abs(p_z - q_z)[~common].sum() / 2,
        "cor": (root * np.abs(p_given - q_given).sum(axis=0)).sum() / 2,
        "div_plus": roots_apart[~common].sum() / 2,
        # root (1 - sum_y sqrt(p q)) as a sum of squares, which rounding cannot make negative
        "cor_plus": (root * np.square(np.sqrt(p_given) - np.sqrt(q_given)).sum(axis=0)).sum() / 2,
        "h2_z": roots_apart.sum() / 2,
        "h2": np.square(np.sqrt(p) - np.sqrt(q)).sum() / 2,
        "tv_z": np.abs(p_z - q_z).sum() / 2,
        "tv_yz": np.abs(p - q).sum() / 2,
    }
    return {name: float(value) for name, value in values.items()}


#: features -> table of (label, shape, color) -> table of (label, feature)
FEATURES: dict[str, Callable[[Floats], Floats]] = {
    "color": lambda table: table.sum(axis=1),
    "color_shape": lambda table: table.reshape(2, 4),
}


def colored_table(e: float, label_noise: float, features: str = "color") -> Floats:
    """Colored digits of two classes, as in Colored MNIST: p(y, z), (2, Z).

    The shape is fair; the label is the shape, flipped with probability ``label_noise``; the color is the *label*,
    flipped with probability e. Environments pooled in equal numbers have the mean of their e.

    Args:
        e: probability that the color differs from the label.
        label_noise: probability that the label differs from the shape.
        features: ``color``, or ``color_shape``: color and shape without noise.

    Raises:
        ConfigError: unknown features.
    """
    if features not in FEATURES:
        raise ConfigError(f"features={features} is unknown; use features={' or features='.join(FEATURES)}")
    label, shape, color = np.indices((2, 2, 2))
    of_label = np.where(label == shape, 1 - label_noise, label_noise)
    of_color = np.where(color == label, 1 - e, e)
    return FEATURES[features](of_label * of_color / 2)


# Diversity and correlation shift from one classifier that predicts side and class together.


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
    given = joint / np.where(side > 0, side, 1)[:, :, None]
    novel = side.min(axis=1) < delta
    apart = np.abs(side[:, 0] - side[:, 1])
    # 2 (1 - sum_y sqrt(p q)) = sum_y (sqrt(p) - sqrt(q))^2, which rounding cannot make negative
    values = {
        "div": novel * apart,
        "cor": ~novel * root * np.abs(given[:, 0] - given[:, 1]).sum(axis=1),
        "div_plus": novel * np.square(np.sqrt(side[:, 0]) - np.sqrt(side[:, 1])),
        "cor_plus": ~novel * root * np.square(np.sqrt(given[:, 0]) - np.sqrt(given[:, 1])).sum(axis=1),
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
    given = joint / np.where(side > 0, side, 1)[:, :, None]
    signs = np.sign(given[:, 0] - given[:, 1])
    sign = signs[np.arange(len(y)), y] - (signs * given.mean(axis=1)).sum(axis=1)
    with np.errstate(divide="ignore"):
        weight = np.where(env == 0, np.sqrt(side[:, 1] / r), np.sqrt(r / side[:, 1]))
    terms = {"div": np.where(apart, np.sign(2 * r - 1), 0.0), "cor": np.where(apart, 0.0, weight * sign)}
    return {name: float((own[env == 0].mean() - own[env == 1].mean()) / 2) for name, own in terms.items()}


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

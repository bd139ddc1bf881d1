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

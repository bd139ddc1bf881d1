"""Shift between distributions that are known: finite tables, and colored digits whose construction
gives the table.

Every estimate on a dataset with painted features can be held against these values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def exact_shift(p: Floats, q: Floats) -> dict[str, float]:
    """Sum up the shift between joint distributions of class and feature (Ye et al. 2022,
    "OoD-Bench", definition 1).

    Args:
        p, q: (K, Z) probabilities of class y and feature z; each sums to 1.

    Returns:
        ``div``, ``cor``, and with squared differences of roots ``div_plus``, ``cor_plus``; over all
        features squared Hellinger distance and total variation of the features, ``h2_z`` and
        ``tv_z``, and of class and feature, ``h2`` and ``tv_yz``.

    Raises:
        ValueError: a table that is no distribution.
    """
    for table in (p, q):
        if not (np.min(table) >= 0 and abs(np.sum(table) - 1) < 1e-9):
            raise ValueError(
                f"probabilities that sum to 1 are needed, these sum to {np.sum(table)}"
            )
    p_z = p.sum(axis=0)
    q_z = q.sum(axis=0)
    common = (p_z > 0) & (q_z > 0)
    root = np.sqrt(p_z * q_z)[common]
    p_given = (p / np.where(p_z > 0, p_z, 1))[:, common]
    q_given = (q / np.where(q_z > 0, q_z, 1))[:, common]
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


def colored_table(e: float, label_noise: float, shape: bool = True) -> Floats:
    """Build p(y, z) of two-class colored digits as in Colored MNIST: (2, 4) of features shape * 2 +
    color, or (2, 2).

    The shape is fair; the label is the shape, flipped with probability ``label_noise``; the color
    is the *label*, flipped with probability e. Environments pooled in equal numbers have the mean
    of their e.

    Args:
        e: probability that the color differs from the label.
        label_noise: probability that the label differs from the shape.
        shape: whether features tell the shape (without noise) besides the color.
    """
    label, digit, color = np.indices((2, 2, 2))
    p_label = np.where(label == digit, 1 - label_noise, label_noise)
    table: Floats = p_label * np.where(color == label, 1 - e, e) / 2
    return table.reshape(2, 4) if shape else table.sum(axis=1)


def exact_values(
    dataset: Any, n_classes: int, sides: Sequence[Sequence[str]], size: Callable[[str], int]
) -> dict[str, float]:
    """Compute the true values of a pair, if features tell color and noise-free class.

    Returns {} if none is known.

    ``cor_color_alone`` is the correlation shift where features tell the color and nothing else: it
    is larger, and estimates on features that tell the class poorly lie between the two.

    Environments that are pooled are one distribution, whose e is their mean, weighted by their
    images.

    Args:
        dataset: options of a dataset; it is of two classes with painted colors where it has
            ``label_noise``.
        n_classes: of the dataset.
        sides: environments of p and of q; their names are their e.
        size: images of an environment.
    """
    noise = getattr(dataset, "label_noise", None)
    if noise is None or n_classes != 2:
        return {}
    pooled = []
    for side in sides:
        try:
            mean = sum(float(e) * size(e) for e in side) / sum(map(size, side))
        except ValueError:  # environments that are no probabilities
            return {}
        pooled.append(mean)
    e_p, e_q = pooled
    exact = exact_shift(colored_table(e_p, noise), colored_table(e_q, noise))
    color_alone = exact_shift(
        colored_table(e_p, noise, shape=False), colored_table(e_q, noise, shape=False)
    )
    values = {name: exact[name] for name in ("div", "cor", "div_plus", "cor_plus")}
    return {**values, "cor_color_alone": color_alone["cor"]}

"""Concept and covariate shift from how often classifiers disagree (Zhang et al. 2023, "NICO++", section 4).

With the 0-1 loss, the loss between two classifiers is the share of images on which they predict different classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def disagreement(pred_a: Ints, pred_b: Ints) -> float:
    """Share of the images, (n,) predictions each, on which two classifiers differ."""
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


def discrepancy(on_p: Ints, on_q: Ints, half_p: Ints, half_q: Ints) -> float:
    """Covariate shift: the largest difference between p and q in how often two classifiers disagree (equation 1).

    The supremum is over the given classifiers. Their pair, and the sign of the difference, is chosen on one half of
    the images and the value is taken on the other: the largest of many noisy values is too large. So the result may
    be slightly negative where there is no shift.

    Args:
        on_p, on_q: (C, n_p), (C, n_q) predictions of C >= 2 classifiers for images that none has learned from.
        half_p, half_q: positions of the images of p and q on which the pair is chosen.
    """
    chosen = _all_disagreements(on_p[:, half_p]) - _all_disagreements(on_q[:, half_q])
    pair = np.unravel_index(np.abs(chosen).argmax(), chosen.shape)
    p_a, p_b = np.delete(on_p[list(pair)], half_p, axis=1)
    q_a, q_b = np.delete(on_q[list(pair)], half_q, axis=1)
    return float(np.sign(chosen[pair]) * (disagreement(p_a, p_b) - disagreement(q_a, q_b)))


def _all_disagreements(predictions: Ints) -> NDArray[np.float64]:
    """(C, C) disagreement of every two of C classifiers."""
    return np.array([(predictions != own).mean(axis=1) for own in predictions])

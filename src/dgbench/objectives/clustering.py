"""Clusters of all training images, with names that last from one clustering to the next.

Everything is computed in float64; chance comes from a given generator.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

RESTARTS = 10
ITERATIONS = 300
MOST_MEMBERSHIPS = 2**24  # entries of the matrix of rows x clusters that is made at once


@dataclass(frozen=True)
class Clusters:
    """A partition of M rows."""

    labels: Tensor  #: (M,) int64
    centers: Tensor  #: (k, m)
    inertia: float  #: sum of the squared distances between rows and their centers


def principal_components(rows: Tensor, n: int) -> Tensor:
    """Project (M, m) rows on the first n principal axes.

    Returns:
        (M, n) coordinates, largest variance first, not whitened.
    """
    centered = rows.double() - rows.double().mean(0)
    _, axes = torch.linalg.eigh(centered.mT @ centered)  # ascending
    coordinates: Tensor = centered @ axes.flip(1)[:, :n]
    return coordinates


def kmeans(
    rows: Tensor,
    k: int,
    rng: np.random.Generator,
    tolerance: float = 0.0,
    starts: Any = "k-means++",
) -> Clusters:
    """Find the best of 10 runs of scikit-learn's k-means, of 300 iterations at most.

    Args:
        rows: (M, m); where M is below k, clusters repeat.
        k: number of clusters.
        rng: draws the starts.
        tolerance: a run ends when the squared shift of all centers is at most this part of the mean
            variance of a column; 0 continues until nothing changes.
        starts: how they are drawn, or (k, m) centers for a single run.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    drawn = isinstance(starts, str)
    values = rows.detach().double().cpu().numpy()
    n = min(k, len(rows))
    search = KMeans(
        n,
        init=starts,
        n_init=RESTARTS if drawn else 1,
        max_iter=ITERATIONS,
        tol=tolerance,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters
        fitted = search.fit(values)
    centers = fitted.cluster_centers_[np.arange(k) % n]
    labels = torch.from_numpy(fitted.labels_.astype(np.int64)).to(rows.device)
    return Clusters(labels, torch.from_numpy(centers).to(rows.device), float(fitted.inertia_))


def means_of(rows: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Average the rows of each cluster, (k, m), 0 for one without rows, and count them, (k,)."""
    total = rows.new_zeros(k, rows.shape[1])
    counts = rows.new_zeros(k)
    numbers = torch.arange(k, device=rows.device)
    size = max(1, MOST_MEMBERSHIPS // k)
    for part, names in zip(torch.split(rows, size), torch.split(labels, size), strict=True):
        # a product of matrices, whose sums have a fixed order
        member = (names[:, None] == numbers).to(rows.dtype)
        total = total + member.mT @ part
        counts = counts + member.sum(0)
    return total / counts.clamp(min=1)[:, None], counts


def relabeled(labels: Tensor, before: Tensor, k: int) -> Tensor:
    """Rename the clusters so that as many rows as possible keep the name that they had before."""
    # (name before, cluster)
    table = torch.bincount(before * k + labels, minlength=k * k).view(k, k)
    _, cluster = linear_sum_assignment(table.cpu().numpy(), maximize=True)  # that each name goes to
    name = torch.empty(k, dtype=torch.int64)
    name[torch.from_numpy(cluster)] = torch.arange(k)
    return name.to(labels.device)[labels]

"""Clusters of all training images: principal components, k-means, and names that last from one clustering to the next.

Everything is computed in float64 on the device that holds the rows, and chance comes from a given generator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

LARGEST = 2**24  # entries of a matrix of distances


@dataclass(frozen=True)
class Clusters:
    """A partition of M rows.

    Args:
        labels: (M,) int64.
        centers: (k, m).
        inertia: sum of the squared distances between rows and their centers.
    """

    labels: Tensor
    centers: Tensor
    inertia: float


def principal_components(rows: Tensor, n: int) -> Tensor:
    """(M, m) -> (M, n) coordinates on the first principal axes, those of largest variance first; not whitened."""
    centered = rows.double() - rows.double().mean(0)
    _, axes = torch.linalg.eigh(centered.mT @ centered)  # ascending
    coordinates: Tensor = centered @ axes.flip(1)[:, :n]
    return coordinates


def kmeans(
    rows: Tensor, k: int, rng: np.random.Generator, restarts: int = 10, iterations: int = 300, tolerance: float = 0.0
) -> Clusters:
    """The best of several runs of Lloyd's algorithm from k-means++ starts (Arthur and Vassilvitskii, 2007).

    Args:
        rows: (M, m).
        k: number of clusters.
        rng: of the starts.
        restarts: runs, of which that with the least inertia counts.
        iterations: of a run at most.
        tolerance: a run ends when the squared shift of all centers is at most this part of the mean variance of a
            column; 0 goes on until nothing changes.
    """
    rows = rows.double()
    limit = tolerance * float(rows.var(0, correction=0).mean())
    runs = [lloyd(rows, spread_starts(rows, k, rng), iterations, limit) for _ in range(restarts)]
    return min(runs, key=lambda run: run.inertia)


def spread_starts(rows: Tensor, k: int, rng: np.random.Generator) -> Tensor:
    """(k, m) rows, each drawn with a probability proportional to its squared distance from the nearest one before."""
    chosen = [rows[int(rng.integers(len(rows)))]]
    distance = (rows - chosen[0]).square().sum(1)
    while len(chosen) < k:
        total = distance.cumsum(0)
        place = torch.searchsorted(total, total[-1] * rng.random(), right=True)
        chosen.append(rows[int(place.clamp(max=len(rows) - 1))])
        distance = torch.minimum(distance, (rows - chosen[-1]).square().sum(1))
    return torch.stack(chosen)


def lloyd(rows: Tensor, centers: Tensor, iterations: int = 300, limit: float = 0.0) -> Clusters:
    """Lloyd's algorithm from given centers.

    A cluster that loses all its rows starts anew at the row that is farthest from its own center.

    Args:
        rows: (M, m) float64.
        centers: (k, m).
        iterations: at most.
        limit: it ends when the squared shift of all centers is at most this.
    """
    k = len(centers)
    for _ in range(iterations):
        labels, distance = nearest(rows, centers)
        moved, counts = means_of(rows, labels, k)
        for number, empty in enumerate((counts == 0).nonzero()[:, 0].tolist()):
            moved[empty] = rows[distance.topk(min(number + 1, len(rows))).indices[-1]]
        shift = float((moved - centers).square().sum())
        centers = moved
        if shift <= limit:
            break
    labels, distance = nearest(rows, centers)
    return Clusters(labels, centers, float(distance.sum()))


def nearest(rows: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """(M,) numbers of the nearest centers, and squared distances from them."""
    squares = centers.square().sum(1)
    labels, distances = [], []
    for part in torch.split(rows, max(1, LARGEST // len(centers))):
        found = torch.addmm(squares, part, centers.mT, alpha=-2).min(1)
        labels.append(found.indices)
        distances.append((found.values + part.square().sum(1)).clamp(min=0))
    return torch.cat(labels), torch.cat(distances)


def means_of(rows: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(k, m) means of the rows of each cluster, 0 for one without rows, and their (k,) numbers."""
    total, counts = rows.new_zeros(k, rows.shape[1]), rows.new_zeros(k)
    numbers = torch.arange(k, device=rows.device)
    size = max(1, LARGEST // k)
    for part, own in zip(torch.split(rows, size), torch.split(labels, size), strict=True):
        member = (own[:, None] == numbers).to(rows.dtype)  # a product of matrices, whose sums have a fixed order
        total, counts = total + member.mT @ part, counts + member.sum(0)
    return total / counts.clamp(min=1)[:, None], counts


def relabeled(labels: Tensor, before: Tensor, k: int) -> Tensor:
    """The same clusters, named so that as many rows as possible keep the name that they had before."""
    table = torch.bincount(before * k + labels, minlength=k * k).view(k, k)  # (name before, cluster)
    _, cluster = linear_sum_assignment(table.cpu().numpy(), maximize=True)  # that each name goes to
    name = torch.empty(k, dtype=torch.int64)
    name[torch.from_numpy(cluster)] = torch.arange(k)
    return name.to(labels.device)[labels]

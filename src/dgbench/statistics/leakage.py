"""How much an oracle gains by choosing with K test domains instead of with validation data.

Source: Yu et al. 2024, section 2.2 and Table 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from dgbench.errors import MeasureError


@dataclass(frozen=True)
class Leakage:
    """Accuracy of each test domain, and its mean, under one way of choosing."""

    test_domains: int  #: K test domains looked at together; 0 for validation data
    accuracies: tuple[float, ...]  #: one per test domain
    average: float
    leakage: float  #: average less that of validation data

    def change(self, single: Leakage) -> float | None:
        """Leakage relative to that of a single test domain, as a fraction: -0.31 is 31% less. None where that is 0."""
        return None if single.leakage == 0 else self.leakage / single.leakage - 1


def oracle_leakage(validation: Sequence[float], tests: ArrayLike) -> list[Leakage]:
    """Choice by validation accuracy, then by the mean test accuracy of K domains for K = 1 to all of them.

    The accuracy of a domain at K is its mean over all combinations of K test domains that contain it. The last
    candidate wins a tie.

    Args:
        validation: validation accuracy of each candidate (hyperparameter set).
        tests: [candidate, test domain] test accuracies.

    Raises:
        MeasureError: no candidate, no test domain, a NaN or arrays that do not match.
    """
    table = np.asarray(tests, dtype=np.float64)
    if table.ndim != 2 or not table.size or len(validation) != len(table):
        raise MeasureError(
            f"{len(validation)} validation accuracies against test accuracies {table.shape}; give one row each"
        )
    if np.isnan(table).any() or any(math.isnan(value) for value in validation):
        raise MeasureError("an accuracy is NaN; leave that candidate out")
    blind = table[_last_best(np.asarray(validation, dtype=np.float64))]
    base = float(blind.mean())
    found = [Leakage(0, tuple(map(float, blind)), base, 0.0)]
    domains = range(table.shape[1])
    for size in range(1, table.shape[1] + 1):
        of_domain: list[list[float]] = [[] for _ in domains]
        for looked_at in combinations(domains, size):
            chosen = table[_last_best(table[:, looked_at].mean(axis=1))]
            for domain in looked_at:
                of_domain[domain].append(float(chosen[domain]))
        accuracies = tuple(math.fsum(values) / len(values) for values in of_domain)
        average = math.fsum(accuracies) / len(accuracies)
        found.append(Leakage(size, accuracies, average, average - base))
    return found


def _last_best(values: np.ndarray) -> int:
    return int(len(values) - 1 - np.argmax(values[::-1]))

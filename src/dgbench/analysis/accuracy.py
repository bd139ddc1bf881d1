"""Accuracies: several in one number, places on a leaderboard, and what an oracle gains.

Over test domains (NICO++), and over seeds with a named error bar. Accuracies are fractions in [0,
1]; everything here is linear in them, so percent work as well.

Sources: Zhang et al. 2023 (NICO++), section 5.1, eq. 5; DomainBed's tables for its error bar; Ye et
al. 2022 (OoD-Bench) for the ranking score; Yu et al. 2024, section 2.2 and Table 4, for leakage.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dgbench.analysis.distributions import t
from dgbench.analysis.intervals import Interval
from dgbench.errors import MeasureError

Spread = Literal["domainbed", "standard_error", "standard_deviation"]
#: error bars over n seeds: name -> its description in a table's title
SPREADS = {
    "domainbed": "standard error, population std / sqrt(n) as DomainBed prints it",
    "standard_error": "standard error, sample std / sqrt(n)",
    "standard_deviation": "standard deviation, divisor n-1",
}
#: divisors of the standard deviation over K test domains
DIVISORS = {"K-1": 1, "K": 0}


def mean(values: Sequence[float]) -> float:
    """Compute the arithmetic mean, rounded once.

    Raises:
        MeasureError: no values.
    """
    if not values:
        raise MeasureError("no accuracy to average; give at least one")
    return math.fsum(values) / len(values)


def spread(values: Sequence[float], kind: str) -> float | None:
    """Compute the error bar of the mean over seeds, or return None for a single value.

    DomainBed prints 0 for a single value.

    Args:
        values: one accuracy per seed.
        kind: a key of :data:`SPREADS`.

    Raises:
        MeasureError: no values, or no such kind.
    """
    if kind not in SPREADS:
        raise MeasureError(f"no error bar {kind!r}; choose one of {', '.join(SPREADS)}")
    n = len(values)
    center = mean(values)
    if n < 2:
        return None
    squares = math.fsum((value - center) ** 2 for value in values)
    if kind == "domainbed":
        return math.sqrt(squares / n) / math.sqrt(n)
    deviation = math.sqrt(squares / (n - 1))
    return deviation if kind == "standard_deviation" else deviation / math.sqrt(n)


def deviation_behind(bar: float, n: int, kind: str) -> float:
    """Recover the sample standard deviation (divisor n-1) of n values from their printed error bar.

    Args:
        bar: the number after ±.
        n: number of values behind it, 2 or more.
        kind: a key of :data:`SPREADS`.
    """
    factors = {
        "domainbed": n / math.sqrt(n - 1),
        "standard_error": math.sqrt(n),
        "standard_deviation": 1.0,
    }
    return bar * factors[kind]


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Compute Student's t interval of the mean of n independent values that are about normal.

    Args:
        values: one per seed.
        level: nominal coverage.

    Raises:
        MeasureError: fewer than 2 values.
    """
    n = len(values)
    center = mean(values)
    error = spread(values, "standard_error")
    if error is None:
        raise MeasureError("1 value has no interval; train more seeds")
    half = float(t.ppf((1 + level) / 2, n - 1)) * error
    return Interval(center, center - half, center + half, level)


def overall(accuracies: Mapping[str, float], images: Mapping[str, float]) -> float:
    """Compute the accuracy over all test images (eq. 5, Overall).

    It is the mean over domains, weighted by their number of images.

    Args:
        accuracies: test domain -> accuracy.
        images: test domain -> number of test images.

    Raises:
        MeasureError: no domain, or one without images.
    """
    if not accuracies:
        raise MeasureError("no accuracy to average; give at least one")
    lacking = sorted(env for env in accuracies if not images.get(env, 0) > 0)
    if lacking:
        raise MeasureError(
            f"number of images unknown for {', '.join(lacking)}; use the average over domains"
        )
    right = math.fsum(accuracies[env] * images[env] for env in accuracies)
    return right / math.fsum(images[env] for env in accuracies)


def domain_std(accuracies: Sequence[float], divisor: str = "K-1") -> float:
    """Compute the standard deviation over K test domains (eq. 5, Std).

    Args:
        accuracies: one per test domain.
        divisor: ``K-1`` as in the paper's formula, or ``K`` as in the paper's Table 2.

    Raises:
        MeasureError: too few domains, or no such divisor.
    """
    if divisor not in DIVISORS:
        raise MeasureError(f"no divisor {divisor!r}; choose one of {', '.join(DIVISORS)}")
    ddof = DIVISORS[divisor]
    if len(accuracies) <= ddof:
        raise MeasureError(
            f"a standard deviation over {len(accuracies)} test domain with divisor {divisor} does "
            "not exist"
        )
    center = mean(accuracies)
    squares = math.fsum((value - center) ** 2 for value in accuracies)
    return math.sqrt(squares / (len(accuracies) - ddof))


#: two accuracies this close are equal: what remains of rounding when 63.3 + 0.2 meets 63.5
_ROUNDING = 1e-9


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """Rank the algorithms, 1 for the highest value.

    Equal values share the better place (1, 2, 2, 4).

    Raises:
        MeasureError: a NaN.
    """
    _check(values)
    ordered = sorted(values.values())
    places = {}
    for name, value in values.items():
        not_better = bisect_right(ordered, value + _ROUNDING)
        places[name] = 1 + len(ordered) - not_better
    return places


def rank_changes(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, int]:
    """Count places won (positive) or lost between two leaderboards.

    Both are ranked over the algorithms that they share.
    """
    shared = before.keys() & after.keys()
    old = ranks({name: before[name] for name in shared})
    new = ranks({name: after[name] for name in shared})
    return {name: old[name] - new[name] for name in after if name in shared}


def ranking_score(value: float, reference: float, error: float) -> int:
    """Score an accuracy -1, 0 or +1: below, within or above the reference's error bar.

    The ends of the bar are within.

    Source: Ye et al. 2022 (OoD-Bench), section 3.2.

    Args:
        value: mean accuracy of the algorithm.
        reference: mean accuracy of ERM on the same dataset.
        error: half width of ERM's error bar.

    Raises:
        MeasureError: a NaN, or a negative error bar.
    """
    _check({"value": value, "reference": reference, "error": error})
    if error < 0:
        raise MeasureError(f"an error bar of {error} is negative; give one >= 0")
    if value > reference + error + _ROUNDING:
        return 1
    return -1 if value < reference - error - _ROUNDING else 0


def _check(values: Mapping[str, float]) -> None:
    invalid = [name for name, value in values.items() if math.isnan(value)]
    if invalid:
        raise MeasureError(f"the value of {', '.join(invalid)} is NaN; leave it out")


@dataclass(frozen=True)
class Leakage:
    """Accuracy of each test domain, and its mean, under one way of choosing."""

    test_domains: int  #: K test domains looked at together; 0 for validation data
    accuracies: tuple[float, ...]  #: one per test domain
    average: float
    leakage: float  #: average less that of validation data


def oracle_leakage(validation: Sequence[float], tests: ArrayLike) -> list[Leakage]:
    """Choose candidates by validation accuracy, then by mean test accuracy, and compare them.

    The latter is that of K domains, K = 1 to all.

    The accuracy of a domain at K is its mean over all combinations of K test domains that contain
    it. The last candidate wins a tie.

    Args:
        validation: validation accuracy of each candidate (hyperparameter set).
        tests: [candidate, test domain] test accuracies.

    Raises:
        MeasureError: no candidate, no test domain, a NaN or arrays that do not match.
    """
    table = np.asarray(tests, dtype=np.float64)
    if table.ndim != 2 or not table.size or len(validation) != len(table):
        raise MeasureError(
            f"{len(validation)} validation accuracies against test accuracies {table.shape}; give "
            "one row each"
        )
    if np.isnan(table).any() or any(math.isnan(value) for value in validation):
        raise MeasureError("an accuracy is NaN; leave that candidate out")
    blind = table[_last_best(np.asarray(validation, dtype=np.float64))]
    base = float(blind.mean())
    leakages = [Leakage(0, tuple(map(float, blind)), base, 0.0)]
    domains = range(table.shape[1])
    for size in range(1, table.shape[1] + 1):
        by_domain: list[list[float]] = [[] for _ in domains]
        for combination in combinations(domains, size):
            chosen = table[_last_best(table[:, combination].mean(axis=1))]
            for domain in combination:
                by_domain[domain].append(float(chosen[domain]))
        accuracies = tuple(math.fsum(values) / len(values) for values in by_domain)
        average = math.fsum(accuracies) / len(accuracies)
        leakages.append(Leakage(size, accuracies, average, average - base))
    return leakages


def _last_best(values: np.ndarray) -> int:
    return int(len(values) - 1 - np.argmax(values[::-1]))

"""Several accuracies in one number: over test domains (NICO++), and over seeds with a named error bar.

Accuracies are fractions in [0, 1]; everything here is linear in them, so percent work as well.
Source: Zhang et al. 2023 (NICO++), section 5.1, eq. 5; DomainBed's tables for its error bar.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dgbench.errors import MeasureError
from dgbench.statistics.bootstrap import Interval

#: error bars over n seeds: name -> what a table's title says
SPREADS = {
    "domainbed": "standard error, population std / sqrt(n) as DomainBed prints it",
    "standard_error": "standard error, sample std / sqrt(n)",
    "standard_deviation": "standard deviation, divisor n-1",
}
#: divisors of the standard deviation over K test domains
DIVISORS = {"K-1": 1, "K": 0}


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, rounded once.

    Raises:
        MeasureError: no values.
    """
    if not values:
        raise MeasureError("no accuracy to average; give at least one")
    return math.fsum(values) / len(values)


def spread(values: Sequence[float], kind: str) -> float | None:
    """Error bar of the mean over seeds; a single value has one of 0 in DomainBed's form and none in the others.

    Args:
        values: one accuracy per seed.
        kind: a key of :data:`SPREADS`.

    Raises:
        MeasureError: no values, or no such kind.
    """
    if kind not in SPREADS:
        raise MeasureError(f"no error bar {kind!r}; choose one of {', '.join(SPREADS)}")
    n, center = len(values), mean(values)
    squares = math.fsum((value - center) ** 2 for value in values)
    if kind == "domainbed":
        return math.sqrt(squares / n) / math.sqrt(n)
    if n < 2:
        return None
    deviation = math.sqrt(squares / (n - 1))
    return deviation if kind == "standard_deviation" else deviation / math.sqrt(n)


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Student's t interval of the mean of n independent values that are about normal.

    Args:
        values: one per seed.
        level: nominal coverage.

    Raises:
        MeasureError: fewer than 2 values.
    """
    from scipy.stats import t

    n, center = len(values), mean(values)
    error = spread(values, "standard_error")
    if error is None:
        raise MeasureError("1 value has no interval; train more seeds")
    half = float(t.ppf((1 + level) / 2, n - 1)) * error
    return Interval(center, center - half, center + half, level)


def overall(accuracies: Mapping[str, float], images: Mapping[str, float]) -> float:
    """Accuracy over all test images: domain means weighted with their number of images (eq. 5, Overall).

    Args:
        accuracies: test domain -> accuracy.
        images: test domain -> number of test images.

    Raises:
        MeasureError: no domain, or one without images.
    """
    if not accuracies:
        raise MeasureError("no accuracy to average; give at least one")
    if lacking := sorted(env for env in accuracies if not images.get(env, 0) > 0):
        raise MeasureError(f"number of images unknown for {', '.join(lacking)}; use the average over domains")
    return math.fsum(accuracies[e] * images[e] for e in accuracies) / math.fsum(images[e] for e in accuracies)


def domain_std(accuracies: Sequence[float], divisor: str = "K-1") -> float:
    """Standard deviation over K test domains (eq. 5, Std).

    Args:
        accuracies: one per test domain.
        divisor: ``K-1`` as in the paper's formula, or ``K`` as in the paper's Table 2.

    Raises:
        MeasureError: too few domains, or no such divisor.
    """
    if divisor not in DIVISORS:
        raise MeasureError(f"no divisor {divisor!r}; choose one of {', '.join(DIVISORS)}")
    less = DIVISORS[divisor]
    if len(accuracies) <= less:
        raise MeasureError(
            f"a standard deviation over {len(accuracies)} test domain with divisor {divisor} does not exist"
        )
    center = mean(accuracies)
    return math.sqrt(math.fsum((value - center) ** 2 for value in accuracies) / (len(accuracies) - less))

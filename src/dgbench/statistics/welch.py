"""Two means of independent samples, of which only mean, standard deviation and number are known.

Source: Welch 1947; Satterthwaite 1946 (degrees of freedom).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dgbench.errors import MeasureError
from dgbench.statistics.bootstrap import Interval


@dataclass(frozen=True)
class Sample:
    """What a table prints of several values, for instance one per seed."""

    mean: float
    deviation: float | None  #: their standard deviation, divisor n-1; unit of the mean; None where it is not known
    n: int  #: how many values


def compatible(first: Sample, second: Sample, level: float = 0.95) -> Interval:
    """Welch's interval of the first mean less the second; the two are compatible where it holds 0.

    It allows for different variances and numbers, and assumes normal values. That the interval holds 0 does not show
    that the means are equal: with few values it is wide, and its width belongs to the statement.

    Args:
        first, second: the samples, independent of one another.
        level: nominal coverage.

    Raises:
        MeasureError: a sample has fewer than 2 values or no standard deviation, or one that is negative or no number.
    """
    from scipy.stats import t

    variances = []
    for sample in (first, second):
        deviation = sample.deviation
        if sample.n < 2 or deviation is None or not (deviation >= 0 and math.isfinite(deviation + sample.mean)):
            raise MeasureError(
                f"a mean of {sample.n} with standard deviation {deviation} cannot be compared; "
                "2 or more values and their standard deviation are needed"
            )
        variances.append(deviation**2 / sample.n)
    difference, total = first.mean - second.mean, sum(variances)
    if total == 0:
        return Interval(difference, difference, difference, level)
    freedom = total**2 / (variances[0] ** 2 / (first.n - 1) + variances[1] ** 2 / (second.n - 1))
    half = float(t.ppf((1 + level) / 2, freedom)) * math.sqrt(total)
    return Interval(difference, difference - half, difference + half, level)

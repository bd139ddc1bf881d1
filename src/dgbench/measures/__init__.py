"""Numbers from plain tables of errors: no torch, no files, usable from a notebook.

>>> from dgbench.measures import worst_gap
>>> worst_gap({"0.90": 0.30, "0.80": 0.20, "0.10": 0.50})  # 0.50 + (0.50 - 0.20) / (3 - 2)
0.8
"""

from dgbench.measures.agreement import kendall, spearman
from dgbench.measures.bootstrap import (
    Interval,
    Resamples,
    correlation_difference,
    correlation_interval,
    pick_probability,
    resample,
)
from dgbench.measures.choice import degradation, select
from dgbench.measures.significance import Friedman, critical_difference, friedman, indistinct_groups
from dgbench.measures.summaries import (
    MEASURES,
    PRACTICAL_MEASURES,
    Measures,
    average,
    gap,
    ideal,
    worst,
    worst_gap,
)

__all__ = [
    "MEASURES",
    "PRACTICAL_MEASURES",
    "Friedman",
    "Interval",
    "Measures",
    "Resamples",
    "average",
    "correlation_difference",
    "correlation_interval",
    "critical_difference",
    "degradation",
    "friedman",
    "gap",
    "ideal",
    "indistinct_groups",
    "kendall",
    "pick_probability",
    "resample",
    "select",
    "spearman",
    "worst",
    "worst_gap",
]

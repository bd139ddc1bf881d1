"""Numbers from plain tables of errors: no torch, no files, usable from a notebook.

>>> from dgbench.measures import worst_gap
>>> worst_gap({"0.90": 0.30, "0.80": 0.20, "0.10": 0.50})  # 0.50 + (0.50 - 0.20) / (3 - 2)
0.8
"""

from dgbench.measures.agreement import kendall, spearman
from dgbench.measures.choice import degradation, select
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
    "Measures",
    "average",
    "degradation",
    "gap",
    "ideal",
    "kendall",
    "select",
    "spearman",
    "worst",
    "worst_gap",
]

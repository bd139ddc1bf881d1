"""Numbers from plain tables of errors: no torch, no files, usable from a notebook.

>>> from dgbench.measures import worst_gap
>>> worst_gap({"0.90": 0.30, "0.80": 0.20, "0.10": 0.50})  # 0.50 + (0.50 - 0.20) / (3 - 2)
0.8
"""

from dgbench.measures.accuracy_summary import domain_std, overall, spread
from dgbench.measures.agreement import kendall, spearman
from dgbench.measures.bootstrap import Interval, Resamples, resample
from dgbench.measures.choice import degradation, select
from dgbench.measures.leakage import Leakage, oracle_leakage
from dgbench.measures.rank_bootstrap import correlation_difference, correlation_interval, pick_probability
from dgbench.measures.ranking import rank_changes, ranking_score, ranks
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
    "Leakage",
    "Measures",
    "Resamples",
    "average",
    "correlation_difference",
    "correlation_interval",
    "critical_difference",
    "degradation",
    "domain_std",
    "friedman",
    "gap",
    "ideal",
    "indistinct_groups",
    "kendall",
    "oracle_leakage",
    "overall",
    "pick_probability",
    "rank_changes",
    "ranking_score",
    "ranks",
    "resample",
    "select",
    "spearman",
    "spread",
    "worst",
    "worst_gap",
]

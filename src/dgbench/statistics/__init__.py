"""Numbers from plain tables of errors: no torch, no files, usable from a notebook.

>>> from dgbench.statistics import worst_gap
>>> worst_gap({"0.90": 0.30, "0.80": 0.20, "0.10": 0.50})  # 0.50 + (0.50 - 0.20) / (3 - 2)
0.8
"""

from dgbench.statistics.accuracy_summary import domain_std, overall, spread
from dgbench.statistics.agreement import kendall, spearman
from dgbench.statistics.bootstrap import Interval, Resamples, resample
from dgbench.statistics.choice import degradation, select
from dgbench.statistics.lead import Lead, Separation, lead, separated
from dgbench.statistics.leakage import Leakage, oracle_leakage
from dgbench.statistics.rank_bootstrap import correlation_difference, correlation_interval, pick_probability
from dgbench.statistics.ranking import rank_changes, ranking_score, ranks
from dgbench.statistics.significance import Friedman, critical_difference, friedman, indistinct_groups, sign_test
from dgbench.statistics.summaries import (
    MEASURES,
    PRACTICAL_MEASURES,
    Measures,
    average,
    gap,
    ideal,
    worst,
    worst_gap,
)
from dgbench.statistics.welch import Sample, compatible

__all__ = [
    "MEASURES",
    "PRACTICAL_MEASURES",
    "Friedman",
    "Interval",
    "Lead",
    "Leakage",
    "Measures",
    "Resamples",
    "Sample",
    "Separation",
    "average",
    "compatible",
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
    "lead",
    "oracle_leakage",
    "overall",
    "pick_probability",
    "rank_changes",
    "ranking_score",
    "ranks",
    "resample",
    "select",
    "separated",
    "sign_test",
    "spearman",
    "spread",
    "worst",
    "worst_gap",
]

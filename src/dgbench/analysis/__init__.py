"""Numbers from plain tables of errors: no torch, no files, usable from a notebook.

>>> from dgbench.analysis import worst_gap
>>> worst_gap({"0.90": 0.30, "0.80": 0.20, "0.10": 0.50})  # 0.50 + (0.50 - 0.20) / (3 - 2)
0.8
"""

from dgbench.analysis.accuracy import (
    Leakage,
    domain_std,
    oracle_leakage,
    overall,
    rank_changes,
    ranking_score,
    ranks,
    spread,
)
from dgbench.analysis.comparison import (
    Friedman,
    Lead,
    Separation,
    critical_difference,
    friedman,
    indistinct_groups,
    lead,
    separated,
    sign_test,
)
from dgbench.analysis.correlation import (
    correlation_difference,
    correlation_interval,
    kendall,
    pick_probability,
    spearman,
)
from dgbench.analysis.intervals import Interval, Resamples, Sample, Statistics, compatible, resample
from dgbench.analysis.measures import (
    MEASURES,
    PRACTICAL_MEASURES,
    Measures,
    average,
    degradation,
    gap,
    ideal,
    select,
    worst,
    worst_gap,
)
from dgbench.analysis.power import (
    Pair,
    detectable,
    deviation_of,
    evidence,
    floor_of_lead,
    noncentrality,
    pairs,
    seeds_needed,
)

__all__ = [
    "MEASURES",
    "PRACTICAL_MEASURES",
    "Friedman",
    "Interval",
    "Lead",
    "Leakage",
    "Measures",
    "Pair",
    "Resamples",
    "Sample",
    "Separation",
    "Statistics",
    "average",
    "compatible",
    "correlation_difference",
    "correlation_interval",
    "critical_difference",
    "degradation",
    "detectable",
    "deviation_of",
    "domain_std",
    "evidence",
    "floor_of_lead",
    "friedman",
    "gap",
    "ideal",
    "indistinct_groups",
    "kendall",
    "lead",
    "noncentrality",
    "oracle_leakage",
    "overall",
    "pairs",
    "pick_probability",
    "rank_changes",
    "ranking_score",
    "ranks",
    "resample",
    "seeds_needed",
    "select",
    "separated",
    "sign_test",
    "spearman",
    "spread",
    "worst",
    "worst_gap",
]

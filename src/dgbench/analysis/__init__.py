"""Numbers from plain tables of errors: no torch, no files, usable from a notebook.

>>> from dgbench.analysis import worst_gap
>>> worst_gap({"0.90": 0.30, "0.80": 0.20, "0.10": 0.50})  # 0.50 + (0.50 - 0.20) / (3 - 2)
0.8
"""

from dgbench.analysis.accuracy import Leakage as Leakage
from dgbench.analysis.accuracy import domain_std as domain_std
from dgbench.analysis.accuracy import oracle_leakage as oracle_leakage
from dgbench.analysis.accuracy import overall as overall
from dgbench.analysis.accuracy import rank_changes as rank_changes
from dgbench.analysis.accuracy import ranking_score as ranking_score
from dgbench.analysis.accuracy import ranks as ranks
from dgbench.analysis.accuracy import spread as spread
from dgbench.analysis.comparison import Friedman as Friedman
from dgbench.analysis.comparison import Lead as Lead
from dgbench.analysis.comparison import Rival as Rival
from dgbench.analysis.comparison import Separation as Separation
from dgbench.analysis.comparison import Standing as Standing
from dgbench.analysis.comparison import critical_difference as critical_difference
from dgbench.analysis.comparison import decided as decided
from dgbench.analysis.comparison import friedman as friedman
from dgbench.analysis.comparison import indistinct_groups as indistinct_groups
from dgbench.analysis.comparison import lead as lead
from dgbench.analysis.comparison import separated as separated
from dgbench.analysis.comparison import sign_test as sign_test
from dgbench.analysis.comparison import standing as standing
from dgbench.analysis.comparison import with_most_seeds as with_most_seeds
from dgbench.analysis.correlation import correlation_difference as correlation_difference
from dgbench.analysis.correlation import correlation_interval as correlation_interval
from dgbench.analysis.correlation import kendall as kendall
from dgbench.analysis.correlation import pick_probability as pick_probability
from dgbench.analysis.correlation import spearman as spearman
from dgbench.analysis.evidence import bounded_evidence as bounded_evidence
from dgbench.analysis.evidence import evidence as evidence
from dgbench.analysis.evidence import sign_evidence as sign_evidence
from dgbench.analysis.intervals import Interval as Interval
from dgbench.analysis.intervals import Resamples as Resamples
from dgbench.analysis.intervals import SampleSummary as SampleSummary
from dgbench.analysis.intervals import Statistics as Statistics
from dgbench.analysis.intervals import compatible as compatible
from dgbench.analysis.intervals import resample as resample
from dgbench.analysis.measures import Measure as Measure
from dgbench.analysis.measures import Measured as Measured
from dgbench.analysis.measures import average as average
from dgbench.analysis.measures import degradation as degradation
from dgbench.analysis.measures import gap as gap
from dgbench.analysis.measures import ideal as ideal
from dgbench.analysis.measures import select as select
from dgbench.analysis.measures import worst as worst
from dgbench.analysis.measures import worst_gap as worst_gap
from dgbench.analysis.power import PairedDifferences as PairedDifferences
from dgbench.analysis.power import detectable as detectable
from dgbench.analysis.power import deviation_of as deviation_of
from dgbench.analysis.power import floor_of_lead as floor_of_lead
from dgbench.analysis.power import noncentrality as noncentrality
from dgbench.analysis.power import pairs as pairs
from dgbench.analysis.power import seeds_needed as seeds_needed

"""Which pairs of algorithms are decided, by evidence that may be looked at after every seed, and
what it assumes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import PairedDifferences, bounded_evidence, evidence, sign_evidence
from dgbench.analysis.evidence import fewest_seeds
from dgbench.reports.standing import counted
from dgbench.reports.tables import Column, Table, entry, table
from dgbench.reports.words import WORDS

_MOST_NAMED = 3
_NORMAL = (
    "Evidence takes differences over seeds to be about normal. Skewed ones mislead it: an "
    "algorithm that fails in one seed of fifty looks better in all others. Beside it stand "
    "evidence without that assumption, and that of the number of seeds alone."
)


def undecided(values: pd.DataFrame, pairs: Sequence[PairedDifferences], needed: float) -> list[str]:
    """List algorithms from which the first one is not separated, whether they share seeds with it
    or not.

    Args:
        values: algorithm x seed, the lowest mean first.
        pairs: of these algorithms.
        needed: evidence of a verdict, where differences are about normal.
    """
    apart = {pair.second for pair in pairs if pair.first == 0 and pair.evidence >= needed}
    return [str(name) for index, name in enumerate(values.index) if index and index not in apart]


def assumptions(
    values: pd.DataFrame, pairs: Sequence[PairedDifferences], needed: float, bound: float
) -> list[str]:
    """Describe what a decided lead assumes of differences over seeds.

    Args:
        values, pairs, needed: of :func:`undecided`, which names none.
        bound: that no difference can exceed in size.
    """
    against = [pair for pair in pairs if pair.first == 0]
    unsure = [pair for pair in against if bounded_evidence(pair.differences, bound) < needed]
    if not unsure:
        return ["That holds whatever differences over seeds are like."]
    seeds = max(fewest_seeds(pair.size, bound, needed) for pair in unsure)
    takes = "more than 10,000" if math.isinf(seeds) else f"{seeds:,.0f}"
    named = counted([str(values.index[pair.second]) for pair in unsure], _MOST_NAMED)
    return [
        "That takes differences over seeds to be about normal.",
        (
            f"Without that assumption: not yet decided against {named}; leads of this size take "
            f"{takes} seeds or more."
        ),
    ]


def verdict(pair: PairedDifferences, needed: float, bound: float) -> str:
    """Return whether a pair is decided, and whether that assumes normal differences, in words."""
    if bounded_evidence(pair.differences, bound) >= needed:
        return "decided"
    return "decided, if differences are about normal" if pair.evidence >= needed else "undecided"


def pair_table(
    values: pd.DataFrame,
    pairs: Sequence[PairedDifferences],
    needed: float,
    bound: float,
    title: str,
) -> Table:
    """Build the table of every two algorithms: difference, evidence by what it assumes, and
    verdict.

    Args:
        values: algorithm x seed.
        pairs: of these algorithms.
        needed: evidence of a verdict.
        bound: that no difference can exceed in size, a fraction.
        title: of what the values are, e.g. ``worst+gap``.
    """
    columns = [
        Column("lower", key=True),
        Column("higher", key=True),
        Column(
            "difference",
            unit="points",
            help=f"of {title}, mean ± standard deviation over the seeds of both",
        ),
        Column("seeds", unit="count"),
        Column("evidence", "evidence, if about normal", "rank", help=WORDS["evidence"]),
        Column("without", "without that", "rank", help=WORDS["without that"]),
        Column("verdict"),
        Column(
            "lower in", unit="count", help="seeds in which the first algorithm is strictly lower"
        ),
        Column("more often", "more often lower", "rank", help=WORDS["more often lower"]),
    ]
    lines: list[dict[str, Any]] = []
    for pair in pairs:
        lower, higher = (str(values.index[index]) for index in (pair.first, pair.second))
        line = {"lower": lower, "higher": higher, "seeds": pair.seeds, "evidence": pair.evidence}
        line |= entry("difference", pair.size, std=pair.deviation)
        line["without"] = bounded_evidence(pair.differences, bound)
        line["verdict"] = verdict(pair, needed, bound)
        line["lower in"] = int((pair.differences > 0).sum())
        line["more often"] = sign_evidence(pair.differences)
        lines.append(line)
    fewest = next(seeds for seeds in count(2) if evidence(np.ones(seeds)) >= needed)
    wins = next(seeds for seeds in count(2) if sign_evidence(np.ones(seeds)) >= needed)
    notes = [
        (
            f"Decided: evidence of {needed:,.0f} or more, so that any false verdict against the "
            f"best of {len(values)} algorithms has a probability of 5% at most, however often one "
            f"looks and whenever one stops. {fewest} seeds are the fewest that can give so much, "
            f'{wins} for "more often lower".'
        ),
        _NORMAL,
        (
            f"Without that: all that is used is that a difference of {title} lies within "
            f"±{100 * bound:g} points; one of 5 points takes "
            f"{fewest_seeds(0.05, bound, needed):,.0f} seeds, of 20 "
            f"{fewest_seeds(0.2, bound, needed):,.0f}."
        ),
    ]
    return table(lines, "pairs", f"Which pairs are decided, by {title}", columns, notes)

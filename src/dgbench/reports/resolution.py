"""What the seeds of a table can tell: the differences that they find, and the noise floor of a
lead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dgbench.analysis import (
    Interval,
    detectable,
    deviation_of,
    floor_of_lead,
    seeds_needed,
)
from dgbench.analysis.power import pair_deviations
from dgbench.reports.over_seeds import comparable, means
from dgbench.reports.standing import Leaders
from dgbench.reports.tables import percent
from dgbench.seeding import ALL, STREAM

_WORTH = (5, 2, 1)  # points


#: what moves between repetitions, by their ``seed_moves``
NOISE = {
    "nothing": "rounding",
    "order": "the order of minibatches",
    "weights": "initial weights",
    "inputs": "random inputs",
    STREAM: "the order of the stream",
}


@dataclass(frozen=True)
class Pilot:
    """What is known of one quantity."""

    title: str
    deviation: Interval  #: of the difference of two algorithms; a fraction
    pairs: int  #: that it is the median of
    algorithms: int

    def seeds(self, points: float, power: float) -> Interval:
        """Compute how many seeds find a difference, and between which numbers they lie."""
        return self._at_each_end(
            lambda spread: seeds_needed(100 * spread, points, self.algorithms, power=power)
        )

    def finds(self, seeds: int, power: float) -> Interval:
        """Compute the smallest difference that so many seeds find; a fraction."""
        factor = detectable(1.0, seeds, self.algorithms, power=power)
        return self._at_each_end(lambda spread: factor * spread)

    def _at_each_end(self, function: Callable[[float], float]) -> Interval:
        spread = self.deviation
        return Interval(
            function(spread.estimate), function(spread.low), function(spread.high), spread.level
        )


def pilot_of(title: str, values: pd.DataFrame) -> Pilot | None:
    """Estimate a pilot from algorithm x seed (or NaN).

    Returns None if no two algorithms share 2 seeds, or no seed differs.
    """
    deviations, seeds = pair_deviations(values.to_numpy())
    if not deviations.any():
        return None
    deviation = deviation_of(deviations, seeds)
    return Pilot(title, deviation, len(deviations), len(values)) if deviation.estimate > 0 else None


def smallest_found(values: pd.DataFrame) -> Interval | None:
    """Compute the smallest difference of two algorithms that a table's seeds find with 80% power,
    with its interval.

    Args:
        values: algorithm x seed.

    Returns:
        The difference, in the unit of the values, or None if no two algorithms share 2 seeds, or
        none differ.
    """
    judged = comparable(values)
    pilot = pilot_of("", judged)
    return pilot.finds(judged.shape[1], 0.8) if pilot else None


def resolution(values: pd.DataFrame, quantity: str, power: float = 0.8) -> list[str]:
    """Describe what the seeds of a table can tell, in one sentence.

    There is none if no two algorithms share 2 seeds.

    Args:
        values: algorithm x seed, fractions.
        quantity: what the values are, e.g. ``worst+gap``.
        power: probability of finding a difference.
    """
    judged = comparable(values)
    algorithms, seeds = judged.shape
    if min(algorithms, seeds) < 2:
        return []
    pilot = pilot_of(quantity, judged)
    if pilot is None:
        return [
            (
                f"Resolution: not known, since the differences of {quantity} are the same in all "
                f"{seeds} seeds."
            )
        ]
    smallest = pilot.finds(seeds, power)
    deviation = pilot.deviation.estimate
    among = ""
    named_pair = ""
    if algorithms > 3:  # of three, each pair is tested as two alone are
        among = f" among {algorithms} algorithms"
        named_pair = (
            f", {percent(detectable(deviation, seeds, power=power))} between two named beforehand"
        )
    takes = (seeds_needed(100 * deviation, points, algorithms, power=power) for points in _WORTH)
    five, two, one = (f"{count:,.0f}" for count in takes)
    return [
        (
            f"Resolution, {100 * power:g}% power: {seeds} seeds find differences of "
            f"{percent(smallest.estimate)} points of {quantity}{among} ([{percent(smallest.low)}, "
            f"{percent(smallest.high)}], so uncertain are deviations from {seeds} "
            f"seeds){named_pair}; 5 points take {five} seeds, 2 take {two}, 1 takes {one}."
        )
    ]


def no_verdict(identity: Mapping[str, Any]) -> list[str]:
    """Warn that seeds which vary only a part of the randomness judge no algorithm."""
    moves = identity["seed_moves"]
    if moves == ALL:
        return []
    return [
        (
            f"Seeds move {NOISE[moves]} alone: deviations are its noise, and no verdict on "
            "algorithms follows."
        )
    ]


def below_noise(
    values: pd.DataFrame,
    repetitions: Mapping[str, pd.DataFrame],
    quantity: str,
    highest: bool = False,
) -> list[str]:
    """Warn of parts of the randomness that alone make leads larger than the first algorithm's.

    Args:
        values: algorithm x seed, fractions.
        repetitions: a key of :data:`NOISE` -> the same of runs that are alike but for that part.
        quantity: what the values are, e.g. ``worst+gap``.
        highest: the highest mean leads.
    """
    judged = comparable(values)
    if len(judged) < 2:
        return []
    level = means(judged)
    leaders = Leaders.of(level, highest)
    if not leaders.others:
        return []
    first = leaders.first
    second = leaders.others[0]
    lead = abs(level[first] - level[second])
    seeds = judged.shape[1]
    floors = []
    for part, name in NOISE.items():
        repeated = repetitions.get(part, values.iloc[:0])
        if {first, second} <= set(repeated.index):
            apart = (repeated.loc[first] - repeated.loc[second]).dropna()
            floor = floor_of_lead(apart, seeds) if len(apart) > 1 else 0.0
            if floor > lead:
                floors.append(f"{percent(floor)} by {name} alone ({len(apart)} repetitions, 95%)")
    if not floors:
        return []
    return [
        (
            f"Below the noise floor: {first} leads {second} by {percent(lead)} points of "
            f"{quantity} over {seeds} seed{'s' * (seeds != 1)}; were they equal, leads would "
            f"reach {', '.join(floors)}."
        )
    ]

"""What the seeds of a table can tell: the differences that they find, and the noise of a part of their chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dgbench.analysis import Interval, detectable, deviation_of, floor_of_lead, pairs, seeds_needed
from dgbench.reports.over_seeds import Leaders, comparable, means
from dgbench.seeding import ALL

_WORTH = (5, 2, 1)  # points
#: what moves between repetitions, by their ``seed_moves``
NOISE = {
    "nothing": "rounding",
    "order": "the order of minibatches",
    "weights": "initial weights",
    "inputs": "random inputs",
}


@dataclass(frozen=True)
class Pilot:
    """What is known of one quantity."""

    title: str
    deviation: Interval  #: of the difference of two algorithms; a fraction
    pairs: int  #: that it is the median of
    algorithms: int

    def seeds(self, points: float, power: float) -> Interval:
        """Seeds that find a difference, and between which numbers they lie."""
        return self._of_each(lambda spread: seeds_needed(100 * spread, points, self.algorithms, power=power))

    def finds(self, seeds: int, power: float) -> Interval:
        """Smallest difference that so many seeds find; a fraction."""
        return self._of_each(lambda spread: detectable(spread, seeds, self.algorithms, power=power))

    def _of_each(self, function: Callable[[float], float]) -> Interval:
        spread = self.deviation
        return Interval(function(spread.estimate), function(spread.low), function(spread.high), spread.level)


def pilot_of(title: str, values: pd.DataFrame) -> Pilot | None:
    """Of algorithm x seed, NaN where there is none; None where no two algorithms share 2 seeds, or no seed differs."""
    every = pairs(values.to_numpy())
    deviations = [pair.deviation for pair in every]
    if not any(deviations):
        return None
    deviation = deviation_of(deviations, [pair.seeds for pair in every])
    return Pilot(title, deviation, len(every), len(values)) if deviation.estimate > 0 else None


def smallest_found(values: pd.DataFrame, power: float = 0.8) -> Interval | None:
    """Smallest difference of two of a table's algorithms that its seeds find, with the interval that they leave.

    Args:
        values: algorithm x seed.
        power: probability of finding it.

    Returns:
        The difference, in the unit of the values; None where no two algorithms share 2 seeds, or none differ.
    """
    judged = comparable(values)
    pilot = pilot_of("", judged)
    return pilot.finds(judged.shape[1], power) if pilot else None


def resolution(values: pd.DataFrame, what: str, power: float = 0.8) -> list[str]:
    """What the seeds of a table can tell, in a sentence; none where no two algorithms share 2 seeds.

    Args:
        values: algorithm x seed, fractions.
        what: they are, e.g. ``worst+gap``.
        power: probability of finding a difference.
    """
    judged = comparable(values)
    algorithms, seeds = judged.shape
    if min(algorithms, seeds) < 2:
        return []
    pilot = pilot_of(what, judged)
    if pilot is None:
        return [f"Resolution: not known, since the differences of {what} are the same in all {seeds} seeds."]
    smallest, deviation = pilot.finds(seeds, power), pilot.deviation.estimate
    among, of_two = "", ""
    if algorithms > 3:  # of three, each pair is tested as two alone are
        among = f" among {algorithms} algorithms"
        of_two = f", {100 * detectable(deviation, seeds, power=power):.1f} between two named beforehand"
    takes = (seeds_needed(100 * deviation, points, algorithms, power=power) for points in _WORTH)
    five, two, one = (f"{count:,.0f}" for count in takes)
    return [
        f"Resolution, {100 * power:g}% power: {seeds} seeds find differences of {100 * smallest.estimate:.1f} "
        f"points of {what}{among} ([{100 * smallest.low:.1f}, {100 * smallest.high:.1f}], so uncertain are "
        f"deviations from {seeds} seeds){of_two}; 5 points take {five} seeds, 2 take {two}, 1 takes {one}."
    ]


def no_verdict(identity: Mapping[str, Any]) -> list[str]:
    """Say that seeds which move a part of their chance alone judge no algorithm; nothing where they move all of it."""
    moves = identity["seed_moves"]
    if moves == ALL:
        return []
    return [f"Seeds move {NOISE[moves]} alone: deviations are its noise, and no verdict on algorithms follows."]


def below_noise(
    values: pd.DataFrame, repetitions: Mapping[str, pd.DataFrame], what: str, highest: bool = False
) -> list[str]:
    """Say which part of a seed's chance alone makes leads as large as that of the first algorithm, if any does.

    Args:
        values: algorithm x seed, fractions.
        repetitions: a key of :data:`NOISE` -> the same of runs that are alike but for that part.
        what: the values are, e.g. ``worst+gap``.
        highest: the highest mean leads.
    """
    judged = comparable(values)
    if len(judged) < 2:
        return []
    level = means(judged)
    leaders = Leaders.of(level, highest)
    if not leaders.others:
        return []
    first, second = leaders.first, leaders.others[0]
    lead, seeds = abs(level[first] - level[second]), judged.shape[1]
    floors = []
    for part, name in NOISE.items():
        repeated = repetitions.get(part, values.iloc[:0])
        if {first, second} <= set(repeated.index):
            apart = (repeated.loc[first] - repeated.loc[second]).dropna()
            if len(apart) > 1 and (floor := floor_of_lead(apart, seeds)) > lead:
                floors.append(f"{100 * floor:.1f} by {name} alone ({len(apart)} repetitions, 95%)")
    if not floors:
        return []
    return [
        f"Below the noise floor: {first} leads {second} by {100 * lead:.1f} points of {what} over {seeds} "
        f"seed{'s' * (seeds != 1)}; were they equal, leads would reach {', '.join(floors)}."
    ]

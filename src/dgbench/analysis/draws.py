"""Which hyperparameter draw of a search counts.

Source: DomainBed's model selection; see also Gulrajani & Lopez-Paz 2021, section 3.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from dgbench.analysis.evaluations import Choices, RunKey
from dgbench.analysis.selection import Selection

Search = tuple[Hashable, str, frozenset[str]]


@dataclass(frozen=True)
class UncountedRuns:
    """Runs that do not count though they have a step: run -> why."""

    lost: dict[int, str] = field(default_factory=dict)  #: another draw of their search was chosen
    stuck: dict[int, str] = field(default_factory=dict)  #: the method has nothing to choose by


def choose_draws(keys: Sequence[RunKey], choices: Choices, selection: Selection) -> UncountedRuns:
    """Choose the draw with the best validation accuracy in each search and seed.

    A search is a group, a protocol and held-out environments. Beside draws it has what its models
    adapt by.

    Ties go to the largest draw (DomainBed sorts ascending and reverses), NaN is lowest. With
    ``one_search`` the draw chosen with the smallest seed that ran several counts for all seeds, and
    ties go to the smallest draw; then to a model that does not adapt, and to the first adaptation
    in the alphabet. Runs without a step do not take part.
    """
    searches: dict[Search, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for run, key in enumerate(keys):
        if run not in choices.reason:
            searches[key.group, key.protocol, key.held_out][key.seed].append(run)
    uncounted = UncountedRuns()
    for seeds in searches.values():
        first_choice: RunKey | None = None
        # the smallest seed that ran several draws comes first
        for seed in sorted(seeds, key=lambda seed: (len(seeds[seed]) < 2, seed)):
            runs = seeds[seed]
            if first_choice is not None:
                losers = [run for run in runs if keys[run].candidate != first_choice.candidate]
                reason = f"{first_choice.candidate_text} was chosen with another seed"
                uncounted.lost.update(dict.fromkeys(losers, reason))
            elif len(runs) > 1 and not all(choices.judged[run] for run in runs):
                reason = f"selection={selection.name} cannot choose among {len(runs)} draws here"
                uncounted.stuck.update(dict.fromkeys(runs, reason))
            elif len(runs) > 1:
                # of equals the first in the alphabet, and before all what does not adapt
                in_order = sorted(runs, key=lambda run: keys[run].adaptation)
                winner = max(in_order, key=lambda run: _worth(run, keys, choices, selection))
                first_choice = keys[winner] if selection.one_search else None
                losers = [run for run in runs if run != winner]
                reason = f"{keys[winner].candidate_text} was chosen"
                uncounted.lost.update(dict.fromkeys(losers, reason))
    return uncounted


def _worth(
    run: int, keys: Sequence[RunKey], choices: Choices, selection: Selection
) -> tuple[float, int]:
    accuracy = float(choices.accuracy[run])
    draw = keys[run].draw
    if math.isnan(accuracy):
        accuracy = -math.inf
    return accuracy, -draw if selection.one_search else draw

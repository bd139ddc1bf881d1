"""Which hyperparameter draw of a search counts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from dgbench.selection.columns import Choices, RunKey
from dgbench.selection.methods import Selection

Search = tuple[Hashable, str, frozenset[str]]


@dataclass(frozen=True)
class Draws:
    """Runs that do not count though they have a step: run -> why."""

    lost: dict[int, str] = field(default_factory=dict)  #: another draw of their search was chosen
    stuck: dict[int, str] = field(default_factory=dict)  #: the method has nothing to choose by


def choose_draws(keys: Sequence[RunKey], choices: Choices, selection: Selection) -> Draws:
    """Within each (group, protocol, held-out environments, seed), keep the highest validation accuracy.

    Ties go to the largest draw (DomainBed sorts ascending and reverses), NaN is lowest. With ``one_search`` the draw
    chosen with the smallest seed that ran several counts for all seeds, and ties go to the smallest. Runs without
    a step do not take part.
    """
    searches: dict[Search, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for run, key in enumerate(keys):
        if run not in choices.why:
            searches[key.group, key.protocol, key.held_out][key.seed].append(run)
    draws = Draws()
    for seeds in searches.values():
        kept: int | None = None
        for _, able in sorted(seeds.items(), key=lambda item: (len(item[1]) < 2, item[0])):
            if kept is not None:
                others = [run for run in able if keys[run].draw != kept]
                draws.lost.update(dict.fromkeys(others, f"draw {kept} was chosen with another seed"))
            elif len(able) > 1 and not all(choices.judged[run] for run in able):
                why = f"selection={selection.name} cannot choose among {len(able)} draws here"
                draws.stuck.update(dict.fromkeys(able, why))
            elif len(able) > 1:
                winner = max(able, key=lambda run: _worth(run, keys, choices, selection))
                kept = keys[winner].draw if selection.one_search else None
                losers = [run for run in able if run != winner]
                draws.lost.update(dict.fromkeys(losers, f"draw {keys[winner].draw} was chosen"))
    return draws


def _worth(run: int, keys: Sequence[RunKey], choices: Choices, selection: Selection) -> tuple[float, int]:
    accuracy, draw = float(choices.accuracy[run]), keys[run].draw
    return (-math.inf if math.isnan(accuracy) else accuracy, -draw if selection.one_search else draw)

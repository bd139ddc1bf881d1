"""Which hyperparameter draw of a search counts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

from dgbench.protocols.selection import Selection
from dgbench.protocols.selection_records import Choices, MemberKey

Search = tuple[Hashable, frozenset[str]]


def choose_draws(keys: Sequence[MemberKey], choices: Choices, selection: Selection) -> dict[int, str]:
    """Within each (group, held-out environments, seed), keep the member with the highest validation accuracy.

    Ties go to the largest draw (DomainBed sorts ascending and reverses), NaN is lowest. With ``one_search`` the draw
    chosen with the smallest seed that ran several counts for all seeds, and ties go to the smallest.

    Returns:
        Why a member does not count, for every member that does not.
    """
    searches: dict[Search, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for member, key in enumerate(keys):
        searches[key.group, key.held_out][key.seed].append(member)
    why = dict(choices.why)
    for seeds in searches.values():
        kept: int | None = None
        for _, members in sorted(seeds.items(), key=lambda item: (len(item[1]) < 2, item[0])):
            able = [member for member in members if member not in why]
            if kept is not None:
                others = [member for member in able if keys[member].draw != kept]
                why |= dict.fromkeys(others, f"draw {kept} was chosen with another seed")
            elif len(able) > 1:
                winner = _winner(able, keys, choices, selection)
                kept = keys[winner].draw if selection.one_search and winner >= 0 else None
                for member in able:
                    if winner < 0:
                        why[member] = f"selection={selection.name} cannot choose among {len(able)} draws here"
                    elif member != winner:
                        why[member] = f"draw {keys[winner].draw} was chosen"
    return why


def _winner(able: Sequence[int], keys: Sequence[MemberKey], choices: Choices, selection: Selection) -> int:
    """The member to keep, -1 where the method has nothing to go by."""
    if not all(choices.judged[member] for member in able):
        return -1

    def worth(member: int) -> tuple[float, int]:
        accuracy = float(choices.accuracy[member])
        draw = keys[member].draw
        return (-math.inf if math.isnan(accuracy) else accuracy, -draw if selection.one_search else draw)

    return max(able, key=worth)

"""Who leads a table of algorithm x seed, whom the seeds do not separate from it, and who is not the
best.

Every report says these things by the functions of this file alone. Two statements are kept apart:
whether *the leader* beats an algorithm, by its own paired test, and whether *some* algorithm does,
which shows that it is not the best and says nothing about the leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pandas as pd

from dgbench.analysis import Lead, Rival, select, standing
from dgbench.analysis.measures import ROUNDING
from dgbench.reports.over_seeds import comparable, means
from dgbench.reports.tables import percent

_MOST_NAMED = 6  # algorithms; of more, the first and the last are named
_MOST_IN_HEADLINE = 3


@dataclass(frozen=True)
class Leaders:
    """Who comes first: one algorithm, or several that tie."""

    names: tuple[str, ...]  #: by the alphabet
    others: tuple[str, ...]  #: the rest, best first

    @classmethod
    def of(cls, level: Mapping[str, float], highest: bool = False) -> Leaders:
        """Find the leaders and the others.

        Args:
            level: algorithm -> the mean that ranks it; of one algorithm at least.
            highest: the highest mean is the best one.
        """
        sign = -1.0 if highest else 1.0
        lowered = {name: sign * value for name, value in level.items()}
        names = select(lowered)
        others = lowered.keys() - set(names)
        return cls(names, tuple(sorted(others, key=lambda name: (lowered[name], name))))

    @property
    def first(self) -> str:
        """The one that stands for all of them in a comparison with the others."""
        return self.names[0]

    @property
    def order(self) -> list[str]:
        """The first one and the others."""
        return [self.first, *self.others]

    @property
    def text(self) -> str:
        """``coral``, ``coral and erm``, ``coral, erm and vrex``."""
        return listed(self.names)

    def sentence(
        self, quantity: str, results: pd.DataFrame, value: str, trained_on_one: bool
    ) -> str:
        """Write ``coral and erm tie for the lowest average error``, or that they are always equal.

        Args:
            quantity: what the first one has, without an article.
            results: every single result.
            value: their column; the other columns but its reason say whose result it is.
            trained_on_one: whether every model was trained on a single environment.
        """
        if len(self.names) == 1:
            return f"{self.text} has the {quantity}"
        places = [
            name for name in results if name != "algorithm" and not str(name).startswith(value)
        ]
        of_leaders = results[results["algorithm"].isin(self.names)]
        table = of_leaders.pivot_table(
            index="algorithm", columns=places, values=value, observed=True
        )
        lines = table.reindex(list(self.names)).to_numpy(dtype="float64")
        if not np.allclose(lines, lines[:1], rtol=ROUNDING, atol=0, equal_nan=True):
            return f"{self.text} tie for the {quantity}"
        reason = ""
        if trained_on_one:
            reason = " (trained on one environment, which leaves no penalty)"
        return f"{self.text} are equal in every result{reason} and share the {quantity}"


@dataclass(frozen=True)
class Verdict:
    """Who leads, and what that rests on."""

    leaders: Leaders  #: among the algorithms with most seeds
    rivals: tuple[str, ...]  #: every other algorithm, best first, those without a value last
    open_to: frozenset[str]  #: rivals that are not separated from the leader
    #: algorithm that some other one beats, in the order of the rivals -> the best that beats it
    beaten_by: Mapping[str, str]
    seeds: int  #: of the leader
    #: what separates two algorithms, for sentences: ``3 seeds``
    basis: str
    #: rival -> why it cannot be judged like the others: ``2 of 3 seeds``
    remarks: Mapping[str, str] = field(default_factory=dict)
    comparisons: Mapping[str, Rival] = field(default_factory=dict)  #: rival -> its test

    @property
    def leader(self) -> str:
        """The algorithm that leads, the first by the alphabet where several tie."""
        return self.leaders.first

    @property
    def decided(self) -> bool:
        """Whether the leader is separated from every other algorithm that there is."""
        return len(self.leaders.names) == 1 and bool(self.rivals) and not self.open_to

    @property
    def rivals_left(self) -> list[str]:
        """List the rivals that are not separated from the leader, best first."""
        return [name for name in self.rivals if name in self.open_to]

    def headline(self, measure: str, *, truly: Sequence[str] = ()) -> str:
        """Write who leads and whether that is decided, in a dozen words.

        Args:
            measure: what ranks them, e.g. ``worst+gap``.
            truly: the algorithms with the lowest ideal error, where it is known.
        """
        leads = f"{self.leader} leads{self._among()} by {measure}"
        if truly and self.leader in truly:
            leads += " and the ideal"
        elif truly:
            leads += f", {listed(truly)} by the ideal"
        if self.decided:
            beaten = counted(self.rivals, _MOST_IN_HEADLINE)
            return f"Decided: {leads}; {self.basis} separate {self.leader} from {beaten}."
        if self.seeds < 2:
            return f"Undecided: {leads}; {self.basis} separates nothing."
        left = self._named(self.rivals_left, _MOST_IN_HEADLINE)
        return f"Undecided: {leads}; {self.basis} cannot separate {self.leader} from {left}."

    def numbers(self, quantity: str, level: float, above: bool = False) -> str:
        """Write the value of the leader, and its distance to the next one.

        The interval of the distance is that of the verdict.

        Args:
            quantity: e.g. ``worst+gap``.
            level: the leader's mean, a fraction.
            above: the highest value is the best one.
        """
        text = f"{self.leaders.text}: {quantity} {percent(level)}%"
        second = next((name for name in self.rivals if name in self.comparisons), None)
        difference = self.comparisons[second].difference if second else None
        if second is None or difference is None:
            return text
        # of another seed more, which the rival lacks, the leader was better
        behind = difference.estimate < 0
        side = "above" if above != behind else "below"
        low, high = (
            (-difference.high, -difference.low) if behind else (difference.low, difference.high)
        )
        shared = f" over {self.comparisons[second].seeds} seeds" if second in self.remarks else ""
        return (
            f"{text}, {percent(abs(difference.estimate))} points {side} {second}{shared} "
            f"([{percent(low)}, {percent(high)}], {100 * difference.level:.3g}% interval)"
        )

    def apart(self, leader: str = "it") -> str:
        """Write whom the seeds do not separate from the leader, and who is not the best.

        Args:
            leader: a name or a pronoun for it.
        """
        if not self.rivals:
            return "nothing to compare it with."
        if not self.open_to:
            others = "the other" if len(self.rivals) == 1 else f"all {len(self.rivals)} others"
            return f"{self.basis} separate {leader} from {others}."
        if self.seeds < 2:
            return f"{self.basis} separates nothing: any difference may be the luck of the seed."
        left = self.rivals_left
        text = (
            f"{self.basis} do not separate {leader} from "
            f"{self._named(left, _MOST_NAMED, spread=True)}"
        )
        beaten = len(self.rivals) - len(left)
        if beaten:
            text += f"; they show that it is better than {beaten} other{'s' * (beaten != 1)}"
        return f"{text}.{self._beaten_by_others()}"

    def _beaten_by_others(self) -> str:
        """Write which rivals are not the best though the leader does not beat them, and why."""
        names = [name for name in self.beaten_by if name in self.open_to]
        if not names:
            return ""
        winners = list(dict.fromkeys(self.beaten_by[name] for name in names))
        verb = "is" if len(names) == 1 else "are"
        text = f" Yet {counted(names, _MOST_NAMED)} {verb} not the best: "
        if len(names) == 1:
            return f"{text}{winners[0]} beats it."
        if len(winners) == 1:
            return f"{text}{winners[0]} beats each of them."
        which = f" ({listed(winners)})" if len(winners) <= _MOST_NAMED else ""
        return f"{text}each is beaten by another one{which}."

    def word(self, name: str) -> str:
        """Describe in a word or two how an algorithm stands."""
        if name in self.leaders.names:
            return "best" if self.decided else "leads"
        if name not in self.open_to:
            return "worse than the leader"
        return "not the best" if name in self.beaten_by else "not separated"

    def _among(self) -> str:
        """Write ``the 4 of 5 with every seed``, or nothing if no algorithm lacks one."""
        if not self.remarks:
            return ""
        total = len(self.rivals) + len(self.leaders.names)
        return f" the {total - len(self.remarks):,} of {total:,} with every seed"

    def _named(self, names: Sequence[str], most: int, spread: bool = False) -> str:
        """Name rivals, or count them; those that lack seeds are named in any case."""
        whole = [name for name in names if name not in self.remarks]
        partial = [f"{name} ({self.remarks[name]})" for name in names if name in self.remarks]
        if len(whole) > most:
            span = f", from {whole[0]} to {whole[-1]}," if spread else ""
            whole = [f"{len(whole)} others{span}"]
        if len(partial) > _MOST_NAMED:
            partial = [f"{len(partial)} that lack seeds"]
        return listed([*whole, *partial]).removesuffix(",")


def judge(
    values: pd.DataFrame, highest: bool = False, absent: Iterable[str] = ()
) -> Verdict | None:
    """Find who leads a table, and whom its seeds separate from the leader.

    Args:
        values: algorithm x seed; NaN where an algorithm lacks a seed.
        highest: the highest mean is the best one.
        absent: algorithms of the same table without any value: they are not ruled out.

    Returns:
        None if no algorithm has a value.
    """
    present = values[values.notna().any(axis=1)]
    if not len(present):
        return None
    names = [str(name) for name in present.index]
    level = means(present)
    full = means(comparable(present))
    leaders = Leaders.of(full, highest)
    sign = -1.0 if highest else 1.0
    outcome = standing(sign * present.to_numpy(), leader=names.index(leaders.first))
    comparisons = {names[rival.position]: rival for rival in outcome.rivals}
    ties = set(leaders.names[1:])
    ordered = sorted(comparisons.keys() - ties, key=lambda name: (sign * level[name], name))
    lacking = sorted(set(map(str, absent)) - set(names))
    rivals = (*ordered, *lacking)
    remarks = {
        name: f"{comparisons[name].seeds} of {outcome.seeds} seeds"
        for name in ordered
        if name not in full
    }
    remarks |= dict.fromkeys(lacking, "no complete seed")
    open_to = {name for name in ordered if not comparisons[name].separated} | set(lacking)
    beaten = {names[loser]: names[winner] for loser, winner in outcome.beaten_by.items()}
    return Verdict(
        leaders=leaders,
        rivals=rivals,
        open_to=frozenset(open_to),
        beaten_by={name: beaten[name] for name in ordered if name in beaten},
        seeds=outcome.seeds,
        basis=f"{outcome.seeds} seed{'s' * (outcome.seeds != 1)}",
        remarks=remarks,
        comparisons={name: comparisons[name] for name in ordered},
    )


def listed(names: Sequence[str]) -> str:
    """Join names as ``a``, ``a and b``, ``a, b and c``."""
    *leading, last = names
    return f"{', '.join(leading)} and {last}" if leading else last


def counted(names: Sequence[str], most: int) -> str:
    """Name so many algorithms, or say how many there are: ``the other 12``."""
    return listed(names) if len(names) <= most else f"{len(names)} others"


def chance_of(leading: Lead) -> str:
    """Express the chance of a lead as ``1 of 4 cases (permutation test), the fewest that 3 seeds
    can show``.
    """
    share = Fraction(leading.as_large, leading.relabelings)
    if leading.p_value <= 0.05:
        judgment = "few enough to tell the two apart"
    elif leading.p_value == leading.least < 1:
        judgment = f"the fewest that {leading.seeds} seeds can show"
    elif share == 1:
        return "every case (permutation test): no evidence that they differ"
    else:
        judgment = "too many to tell the two apart"
    return f"{share.numerator} of {share.denominator} cases (permutation test), {judgment}"

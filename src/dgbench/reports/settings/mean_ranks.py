"""Mean ranks of algorithms over blocks, and what is needed to tell them apart (Demsar 2006, section 3.2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from dgbench.statistics import Friedman, critical_difference, friedman, indistinct_groups


@dataclass(frozen=True)
class Ranking:
    """Mean ranks, Friedman's test of them and Nemenyi's critical difference."""

    ranks: dict[str, float]  #: algorithm -> mean rank, 1 is the best
    test: Friedman
    difference: float  #: mean ranks that are further apart differ
    alpha: float  #: error probability of the test and of the difference

    @classmethod
    def of(cls, names: Sequence[str], blocks: ArrayLike, alpha: float = 0.05) -> Ranking:
        """Rank the algorithms within each block.

        Args:
            names: k algorithms.
            blocks: (n, k) values; lower is better.
            alpha: error probability.

        Raises:
            MeasureError: fewer than 2 blocks or 3 algorithms, a missing value, or ties throughout.
        """
        test = friedman(blocks)
        ranks = dict(zip(names, test.mean_ranks, strict=True))
        return cls(ranks, test, critical_difference(len(names), test.blocks, alpha), alpha)

    @property
    def order(self) -> list[str]:
        """The algorithms, lowest mean rank first."""
        return sorted(self.ranks, key=lambda a: (self.ranks[a], a))

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Algorithms that the test cannot tell apart; none are tied together when it finds differences everywhere."""
        return indistinct_groups(self.ranks, self.difference)

    @property
    def first(self) -> str:
        """The algorithm with the lowest mean rank."""
        return self.order[0]

    @property
    def separated(self) -> int:
        """Number of other algorithms that the test separates from the first one."""
        if self.test.p_value_f >= self.alpha:
            return 0
        return sum(rank - self.ranks[self.first] > self.difference for rank in self.ranks.values())

    @property
    def leader(self) -> str | None:
        """The first one, where the test separates it from every other."""
        return self.first if self.separated == len(self.ranks) - 1 else None

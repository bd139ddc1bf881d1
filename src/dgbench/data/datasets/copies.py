"""Pictures that are files with the same bytes: between environments, or between train and val of
one. No torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from dgbench.data.datasets.image_table import ImageTable
from dgbench.data.datasets.same_bytes import Groups
from dgbench.data.datasets.splits import Subsets
from dgbench.validation import some_of


def groups_that_count(groups: Groups, kept: np.ndarray) -> Groups:
    """List groups of copies without the pictures that do not count, (n,) bool, where two or more
    are left.
    """
    counted = [[i for i in group if kept[i]] for group in groups]
    return [group for group in counted if len(group) > 1]


def without_copies(kept: np.ndarray, groups: Groups) -> np.ndarray:
    """Mark of every picture its first file by path, (n,) bool, among those that are ``kept``."""
    first = kept.copy()
    for group in groups_that_count(groups, kept):
        first[group[1:]] = False
    return first


@dataclass(frozen=True)
class Copies:
    """Pictures that leak: what is trained on is seen again where it is judged."""

    between: Counter[tuple[str, str]]  #: two environments -> pictures that stand in both
    within: Counter[str]  #: environment -> pictures that stand in its train and in its val or test
    labels: int  #: pictures that stand under two classes
    example: tuple[str, str]  #: paths of two files with the same bytes

    def line(self) -> str:
        """Say what stands where, with an example."""
        parts = [f"{n} in {one} and {other}" for (one, other), n in self.between.most_common()]
        parts += [
            f"{n} in train and in val or test of {env}" for env, n in self.within.most_common()
        ]
        labels = f"; {self.labels} of them under two classes" if self.labels else ""
        return (
            f"pictures with the same bytes: {some_of(parts, 6)}{labels}; e.g. "
            f"{' and '.join(self.example)}"
        )


def leaking_copies(
    table: ImageTable, copies: Groups, kept: np.ndarray, subsets: Subsets
) -> Copies | None:
    """Find the pictures that stand in two environments, or in two subsets of one; None where there
    are none.

    Args:
        table: the files.
        copies: positions of those with the same bytes.
        kept: (n,) bool, the pictures that count.
        subsets: of every environment.
    """
    groups = groups_that_count(copies, kept)
    if not groups:
        return None
    trained = np.zeros(len(table), bool)
    for (_, name), positions in subsets.items():
        if name == "train":
            trained[positions] = True
    between: Counter[tuple[str, str]] = Counter()
    within: Counter[str] = Counter()
    labels, examples = 0, []
    for group in groups:
        pairs = list(_environments(table, group))
        torn = list(_torn(table, group, trained))
        between.update(pairs)
        within.update(torn)
        if pairs or torn:
            labels += len(set(table.label[group].tolist())) > 1
            examples.append(group)
    if not examples:
        return None
    first = examples[0]
    other = next((i for i in first if table.env[i] != table.env[first[0]]), first[1])
    return Copies(between, within, labels, (table.paths[first[0]], table.paths[other]))


def _environments(table: ImageTable, group: Iterable[int]) -> Iterator[tuple[str, str]]:
    """Yield every pair of environments that have a picture in common."""
    numbers = sorted({int(table.env[i]) for i in group})
    for one, other in combinations(numbers, 2):
        yield table.environments[one], table.environments[other]


def _torn(table: ImageTable, group: Sequence[int], trained: np.ndarray) -> Iterator[str]:
    """Yield every environment that has copies of a picture both in train and elsewhere."""
    for env in sorted({int(table.env[i]) for i in group}):
        sides = {bool(trained[i]) for i in group if table.env[i] == env}
        if len(sides) == 2:
            yield table.environments[env]

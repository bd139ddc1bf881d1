"""Pictures that are files with the same bytes, between environments or between train and val.

Imports no torch.
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


def groups_that_count(groups: Groups, counted: np.ndarray) -> Groups:
    """List the groups of copies, restricted to the pictures that count, (n,) bool.

    Groups with fewer than two such pictures are left out.
    """
    restricted = []
    for group in groups:
        members = [i for i in group if counted[i]]
        if len(members) > 1:
            restricted.append(members)
    return restricted


def without_copies(counted: np.ndarray, groups: Groups) -> np.ndarray:
    """Mark the first file of every picture by path, (n,) bool, among those that count."""
    first = counted.copy()
    for group in groups_that_count(groups, counted):
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
        """Describe what stands where, with an example."""
        parts = [f"{n} in {one} and {other}" for (one, other), n in self.between.most_common()]
        for env, n in self.within.most_common():
            parts.append(f"{n} in train and in val or test of {env}")
        labels = f"; {self.labels} of them under two classes" if self.labels else ""
        example = " and ".join(self.example)
        return f"pictures with the same bytes: {some_of(parts, 6)}{labels}; e.g. {example}"


def leaking_copies(
    table: ImageTable, copies: Groups, counted: np.ndarray, subsets: Subsets
) -> Copies | None:
    """Find the pictures that stand in two environments, or in two subsets of one; else return None.

    Args:
        table: the files.
        copies: positions of those with the same bytes.
        counted: (n,) bool, the pictures that count.
        subsets: of every environment.
    """
    groups = groups_that_count(copies, counted)
    if not groups:
        return None
    trained = np.zeros(len(table), bool)
    for (_, name), positions in subsets.items():
        if name == "train":
            trained[positions] = True
    between: Counter[tuple[str, str]] = Counter()
    within: Counter[str] = Counter()
    labels = 0
    examples = []
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
    example = examples[0]
    elsewhere = [i for i in example if table.env[i] != table.env[example[0]]]
    other = elsewhere[0] if elsewhere else example[1]
    return Copies(between, within, labels, (table.paths[example[0]], table.paths[other]))


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

"""Pictures that are files with the same bytes: between environments, or between train and val of one. No torch.

The bytes are hashed when a picture is decoded, and the hashes lie beside the decoded pictures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from dgbench.data.datasets.image_table import ImageTable, decoded_folder
from dgbench.data.datasets.splits import Subsets
from dgbench.data.store.array_cache import notes_of
from dgbench.validation import some_of

DIGESTS = "digests"  # key of the notes of decoded pictures
BROKEN = ""  # in place of the hash of a file that could not be decoded


def known_digests(table: ImageTable, side: int | None, cache: Path) -> list[str]:
    """Read the hash of every file's bytes, in the order of the table; empty where it was not decoded before."""
    if side is None:
        return []
    return [digest for _, _, note in notes_of(decoded_folder(table, side, cache)) for digest in note[DIGESTS]]


def groups_of_copies(digests: Sequence[str], counted: np.ndarray) -> list[list[int]]:
    """List the positions of pictures with the same bytes, in ascending order, where there are two or more.

    Args:
        digests: of every file; :data:`BROKEN` equals nothing.
        counted: (n,) bool, the pictures that count.
    """
    if len(set(digests)) == len(digests):
        return []
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for i in np.flatnonzero(counted).tolist() if digests else ():
        if digests[i] != BROKEN:
            groups[digests[i]].append(i)
    return [group for group in groups.values() if len(group) > 1]


def without_copies(kept: np.ndarray, digests: Sequence[str]) -> np.ndarray:
    """Mark of every picture its first file by path, (n,) bool, among those that are ``kept``."""
    first = kept.copy()
    for group in groups_of_copies(digests, kept):
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
        parts += [f"{n} in train and in val or test of {env}" for env, n in self.within.most_common()]
        labels = f"; {self.labels} of them under two classes" if self.labels else ""
        return f"pictures with the same bytes: {some_of(parts, 6)}{labels}; e.g. {' and '.join(self.example)}"


def leaking_copies(table: ImageTable, digests: Sequence[str], kept: np.ndarray, subsets: Subsets) -> Copies | None:
    """Find the pictures that stand in two environments, or in two subsets of one; None where there are none.

    Args:
        table: the files.
        digests: of their bytes.
        kept: (n,) bool, the pictures that count.
        subsets: of every environment.
    """
    groups = groups_of_copies(digests, kept)
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

"""Which images of two sides p and q enter an estimate of shift: balanced classes, null pairs,
splits, halves.

An estimate of diversity and correlation shift assumes that the classes have the same shares on both
sides (Ye et al. 2022, "OoD-Bench", assumption 1), so both sides keep the same number of images of
every class. Every function draws from the generator that it is given, within each class, and
returns positions ordered by class.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import DataError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Balanced:
    """The images of either side that count: the same number of every class."""

    p: Ints  #: (n,) positions in p, ordered by class
    q: Ints  #: (n,) positions in q, ordered by class
    classes: Ints  #: (K',) labels that were kept, ascending
    dropped: dict[int, tuple[int, int]]  #: label that was left out -> its images in p and in q


def balanced(
    y_p: Ints,
    y_q: Ints,
    min_per_class: int,
    rng: np.random.Generator,
    max_per_class: int | None = None,
) -> Balanced:
    """Keep min(n_y of p, n_y of q) images of every class y on either side, at random.

    Args:
        y_p, y_q: (n_p,), (n_q,) labels of the two sides.
        min_per_class: classes with fewer images on either side are dropped; so are those of one
            side only.
        max_per_class: at most that many images of a class are kept on either side.

    Raises:
        DataError: no class is left.
    """
    counts = {
        int(label): (int((y_p == label).sum()), int((y_q == label).sum()))
        for label in np.union1d(y_p, y_q)
    }
    classes = [label for label, numbers in counts.items() if min(numbers) >= max(1, min_per_class)]
    dropped = {label: numbers for label, numbers in counts.items() if label not in classes}
    if not classes:
        raise DataError(_nothing_left(dropped, min_per_class))
    p = []
    q = []
    for label in classes:
        n_kept = min(*counts[label], max_per_class or max(counts[label]))
        p.append(_draw(y_p, label, rng)[:n_kept])
        q.append(_draw(y_q, label, rng)[:n_kept])
    return Balanced(
        np.concatenate(p), np.concatenate(q), np.array(classes, dtype=np.int64), dropped
    )


def null_pair(y_p: Ints, y_q: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Make two sides of one distribution: whatever shift an estimator finds between them is its
    noise and bias.

    Every class of either side is halved at random, the smaller half first; the new p is the first
    half of p and the second of q, the new q the rest. From balanced sides come balanced sides of
    the same size.

    Args:
        y_p, y_q: (n,), (n,) labels of balanced sides.

    Returns:
        The new p and the new q, (n,) each: positions in p and q together, those of p first.
    """
    (first_p, second_p), (first_q, second_q) = (_cut(y, lambda n: n // 2, rng) for y in (y_p, y_q))
    n = len(y_p)
    return np.concatenate([first_p, n + second_q]), np.concatenate([second_p, n + first_q])


def held_out_split(y: Ints, fraction: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Split into positions to train on and held-out ones: of every class floor(fraction * n) images
    are held out.
    """
    # 0.29 * 100 is 28.999999999999996: a product that is whole but for rounding counts as whole
    held_out, train = _cut(y, lambda n: math.floor(fraction * n + 1e-9), rng)
    return train, held_out


def half(y: Ints, rng: np.random.Generator) -> Ints:
    """Draw the positions of a random half, floor(n / 2) images of every class.

    A class of one image is lost.
    """
    return _cut(y, lambda n: n // 2, rng)[0]


def cross_fit(groups: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Split positions into two folds.

    Sizes differ by at most 1, and so do their numbers of each of the (N,) groups.
    """
    order = np.concatenate([_draw(groups, group, rng) for group in np.unique(groups)])
    return order[::2], order[1::2]


def _draw(y: Ints, label: int, rng: np.random.Generator) -> Ints:
    """Draw the positions of one class in random order."""
    return rng.permutation(np.flatnonzero(y == label))


def _cut(y: Ints, size: Callable[[int], int], rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw ``size(n)`` of the n positions of every class; return these, and the others."""

    first = []
    second = []
    for label in np.unique(y):
        rows = _draw(y, label, rng)
        first.append(rows[: size(len(rows))])
        second.append(rows[size(len(rows)) :])
    return np.concatenate(first), np.concatenate(second)


def _nothing_left(dropped: dict[int, tuple[int, int]], min_per_class: int) -> str:
    largest = sorted(dropped, key=lambda label: min(dropped[label]), reverse=True)[:5]
    named = ", ".join(
        f"class {label}: {dropped[label][0]} and {dropped[label][1]}" for label in largest
    )
    suffix = f" and {len(dropped) - len(largest)} others" if len(dropped) > len(largest) else ""
    return (
        f"no class has {min_per_class} images in p and in q "
        f"({named or 'no images at all'}{suffix}); lower min_per_class or choose environments "
        "with common classes"
    )

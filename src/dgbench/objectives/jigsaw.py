"""Images as puzzles of 3 x 3 tiles: the permutations, and cutting and putting together."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

SIDE = 3  # tiles per side
TILES = SIDE * SIDE
# by output position the number of the input tile; at least 4 positions differ between any two
PUBLISHED = """
720156348 012345687 103264875 231078456 345680712 456807123 568712034 687423501 874531260 012387564
104625873 235471086 326514708 458706231 547168320 860243157 673850412 781032645 012437658 103246785
230154867 321068574 456783120 548370216 687501342 765812403 874625031 012547836 103258647 230165478
"""


@cache
def orders(count: int) -> tuple[tuple[int, ...], ...]:
    """The identity and ``count`` other permutations of the tiles, far from one another in Hamming distance.

    Those of Carlucci et al. (2019) for 30. Otherwise each is the first, in a shuffled list, of those whose least
    distance to the ones before is largest.
    """
    identity = tuple(range(TILES))
    if count == 30:
        return identity, *(tuple(int(digit) for digit in word) for word in PUBLISHED.split())
    every = np.array(list(permutations(identity)), np.int8)[1:]
    np.random.default_rng(0).shuffle(every)
    found, distance = [0], np.full(len(every), TILES + 1)
    while len(found) < count:
        distance = np.minimum(distance, (every != every[found[-1]]).sum(1))
        found.append(int(distance.argmax()))
    return identity, *(tuple(int(tile) for tile in every[number]) for number in found)


def square(height: int, width: int) -> tuple[slice, slice]:
    """Rows and columns of the middle part of an image that can be cut into equal tiles."""
    parts = []
    for size in (height, width):
        side = size // SIDE * SIDE
        first = (size - side) // 2
        parts.append(slice(first, first + side))
    return parts[0], parts[1]


def cut(x: Tensor) -> Tensor:
    """(N, C, 3 h, 3 w) -> (N, 9, C, h, w), row by row."""
    n, c, height, width = x.shape
    tiles = x.reshape(n, c, SIDE, height // SIDE, SIDE, width // SIDE)
    return tiles.permute(0, 2, 4, 1, 3, 5).reshape(n, TILES, c, height // SIDE, width // SIDE)


def assemble(tiles: Tensor) -> Tensor:
    """The inverse of :func:`cut`."""
    n, _, c, h, w = tiles.shape
    return tiles.reshape(n, SIDE, SIDE, c, h, w).permute(0, 3, 1, 4, 2, 5).reshape(n, c, SIDE * h, SIDE * w)


def framed(inner: Tensor, x: Tensor) -> Tensor:
    """Images ``x`` with their middle part, see :func:`square`, replaced by ``inner``."""
    rows, columns = square(*x.shape[-2:])
    height, width = x.shape[-2:]
    edges = (columns.start, width - columns.stop, rows.start, height - rows.stop)
    inside = F.pad(torch.ones_like(inner[0, 0], dtype=torch.bool), edges)
    return torch.where(inside, F.pad(inner, edges), x)

"""Random pairs of environments, drawn as permutations and formed without a data-dependent shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.batches import EnvBatch


@dataclass(frozen=True)
class Pairs:
    """P pairs of environments, row k of the first beside row k of the second.

    Both sides are as long as the longest minibatch L; rows beyond the shorter of the two repeat a
    last row and have weight 0, so that no shape depends on which environments were paired. (Only an
    unfrozen BatchNorm sees them.)
    """

    #: (P, L) row numbers within the batch
    first: Tensor
    second: Tensor
    weight: Tensor  #: (P, L), sums to 1 over the rows that count, 0 elsewhere


def pair_rows(batch: EnvBatch, first: Tensor, second: Tensor) -> Pairs:
    """Pair the rows of the environments numbered ``first`` with those of ``second``, both (P,)."""
    device = batch.x.device
    lengths = torch.stack([torch.full((), size, device=device) for size in batch.sizes])
    starts = lengths.cumsum(0) - lengths
    row = torch.arange(max(batch.sizes), device=device)
    rows = starts[:, None] + torch.minimum(row, lengths[:, None] - 1)
    pair_lengths = torch.minimum(lengths[first], lengths[second])[:, None]
    weight = (row < pair_lengths) / pair_lengths.to(batch.x.dtype)
    return Pairs(rows[first], rows[second], weight)


def cyclic_pairs(batch: EnvBatch, permutation: Tensor) -> Pairs:
    """Form DomainBed's pairs P(n).

    With the (E,) permutation p, environment p_i stands beside p_(i+1 mod E).
    """
    return pair_rows(batch, permutation, permutation.roll(-1))


def shuffle_second(pairs: Pairs, keys: Tensor) -> Pairs:
    """Permute the second side of every pair within the rows that count.

    Args:
        pairs: P pairs of environments.
        keys: (P, L) uniform random numbers in [0, 1), by which rows are sorted.
    """
    # keys lie in [0, 1): the padding, at 2, sorts behind every row that counts
    order = torch.where(pairs.weight > 0, keys, 2.0).argsort(-1)
    return Pairs(pairs.first, pairs.second.gather(1, order), pairs.weight)


def weighted_risk(logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Sum the cross entropy of (n, K) logits with (n,) weights."""
    return (F.cross_entropy(logits, y, reduction="none") * weight).sum()


def partners(matches: Tensor, u: Tensor) -> Tensor:
    """Choose for every row another row that counts as the same, or itself if there is none.

    Args:
        matches: (n, n) bool, whether column j may stand beside row i; the diagonal is not looked
            at.
        u: (n,) uniform random numbers in [0, 1), one choice each.

    Returns:
        (n,) int64
    """
    row = torch.arange(len(u), device=u.device)
    candidates = matches & (row[:, None] != row)
    count = candidates.sum(1)
    number = torch.minimum((u * count).long(), count - 1)  # u may be rounded to 1
    chosen = (candidates.cumsum(1) > number[:, None]).long().argmax(1)
    return torch.where(count > 0, chosen, row)


@dataclass(frozen=True)
class Half:
    """Some rows of a minibatch, and for each image another of its class and environment."""

    x: Tensor
    y: Tensor
    positive: Tensor


def halves(batch: EnvBatch, u: Tensor) -> tuple[Half, Half]:
    """Cut every environment's rows into the first half and the next as many.

    A single row is in both halves.

    Args:
        batch: minibatches of all environments.
        u: (2, :func:`half_size`) uniform random numbers in [0, 1), which choose the other images.
    """
    lengths = [max(1, size // 2) for size in batch.sizes]
    firsts = [0] * len(lengths)
    seconds = [min(n, size - n) for n, size in zip(lengths, batch.sizes, strict=True)]
    return _half(batch, firsts, lengths, u[0]), _half(batch, seconds, lengths, u[1])


def half_size(sizes: Sequence[int]) -> int:
    """Count the rows of each of the :func:`halves` of minibatches of these sizes."""
    return sum(max(1, size // 2) for size in sizes)


def _half(batch: EnvBatch, starts: Sequence[int], lengths: Sequence[int], u: Tensor) -> Half:
    def rows(values: Tensor) -> Tensor:
        parts = zip(batch.split(values), starts, lengths, strict=True)
        return torch.cat([part[start : start + n] for part, start, n in parts])

    x = rows(batch.x)
    y = rows(batch.y)
    env = rows(batch.env)
    matches = (y[:, None] == y) & (env[:, None] == env)
    return Half(x, y, x[partners(matches, u)])

"""Random cuts of every minibatch, which put rows of all environments into two groups."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dgbench.objectives.random_inputs import Integers, RandomInputs
from dgbench.objectives.step import Outcome, Step


def cuts(sizes: tuple[int, ...]) -> RandomInputs:
    """One cut of each minibatch."""
    shape = (len(sizes),)
    return {"cuts": Integers(shape, "first row of the second group in each minibatch", below=tuple(sizes))}


def two_groups(s: Step) -> Tensor:
    """(2, N) ones and zeros: the rows before the cuts of their minibatches, and the rest."""
    place = torch.cat([torch.arange(size, device=s.x.device) for size in s.sizes])
    before = place < s.random["cuts"][s.env]
    return torch.stack([before, ~before]).to(s.x.dtype)


def regularized(s: Step, distance: Callable[[Tensor, Tensor], Tensor]) -> Outcome:
    """Mean risk and ``mmd_gamma`` times the distance of the two groups; 0 for a group of less than two rows, or NaN.

    Args:
        distance: (N, m) features and (2, N) membership -> scalar, finite for every membership.
    """
    z = s.separate_features()
    member = two_groups(s)
    found = distance(z, member)
    counts = (member.sum(1) > 1).all() & ~found.isnan()
    penalty = torch.where(counts, found, 0.0)
    loss = s.environment_risks(s.networks.classifier(z)).mean() + s.hp.mmd_gamma * penalty
    return Outcome(loss, {"penalty": penalty.detach(), "penalty_weight": s.hp.mmd_gamma})

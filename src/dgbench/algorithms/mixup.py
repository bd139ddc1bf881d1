"""Mixup between environments."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.pairing import cyclic_pairs, shuffle_second
from dgbench.objectives.step import (
    Beta,
    Outcome,
    Permutation,
    RandomInput,
    RandomInputs,
    Step,
    Uniform,
)


class Mixup(Algorithm):
    """Train on convex combinations of images of two environments (Yan et al., 2020; DomainBed).

    For each pair (i, j) of P(n) and one weight w ~ Beta(mixup_alpha, mixup_alpha):

        u    = w x_i + (1-w) x_j
        term = w CE(f(u), y_i) + (1-w) CE(f(u), y_j)

    L is the mean of the terms of the n pairs. ``mixup_inner_permutation`` also shuffles the rows of
    x_j, as the code of Yu et al. (2024) does.
    """

    choices: ClassVar[Choices] = {"mixup_inner_permutation": (True, False)}
    why_not_cacheable = "it mixes images, and features of a mixture are no mixture of features"

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        n = len(sizes)
        inputs: dict[str, RandomInput] = {
            "permutation": Permutation((n,), "cyclic order of the environments"),
            "weight": Beta((n,), "w of each pair", alpha=self.values["mixup_alpha"]),
        }
        if self.values["mixup_inner_permutation"]:
            inputs["keys"] = Uniform((n, max(sizes)), "order of the second side's rows, by sorting")
        return inputs

    def objective(self, s: Step) -> Outcome:
        pairs = cyclic_pairs(s.batch, s.random["permutation"])
        if self.values["mixup_inner_permutation"]:
            pairs = shuffle_second(pairs, s.random["keys"])
        weight = s.random["weight"]  # (n,)
        w = weight.view(-1, 1, *[1] * (s.x.dim() - 1))
        mixed = w * s.x[pairs.first] + (1 - w) * s.x[pairs.second]
        logits = torch.stack([s.networks.logits(u) for u in mixed])  # (n, L, K), one pass per pair
        first = self._risks(logits, s.y[pairs.first], pairs.weight)
        second = self._risks(logits, s.y[pairs.second], pairs.weight)
        return Outcome((weight * first).mean() + ((1 - weight) * second).mean())

    @staticmethod
    def _risks(logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Compute the (n,) risks of the pairs from (n, L, K) logits."""
        losses = F.cross_entropy(logits.movedim(-1, 1), y, reduction="none")
        return (losses * weight).sum(1)

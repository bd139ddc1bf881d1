"""Mixup between environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.base import Algorithm
from dgbench.algorithms.contract import Choices
from dgbench.algorithms.pairing import cyclic_pairs, draw_permutations, shuffle_second
from dgbench.types import EnvBatch, Networks, Outcome, Tensors


class Mixup(Algorithm):
    """Train on convex combinations of images of two environments (Yan et al., 2020; DomainBed).

    For each pair (i, j) of P(n) and one weight w ~ Beta(mixup_alpha, mixup_alpha): u = w x_i + (1-w) x_j and
    term = w CE(f(u), y_i) + (1-w) CE(f(u), y_j); L is the mean over the n pairs.
    ``mixup_inner_permutation`` also shuffles the rows of x_j, as the code of Yu et al. (2024) does.
    """

    static = frozenset({"mixup_inner_permutation"})
    choices: ClassVar[Choices] = {"mixup_inner_permutation": (True, False)}
    order_matters = True
    why_not_cacheable = "it mixes images, and features of a mixture are no mixture of features"

    def draw_noise(
        self, rng: np.random.Generator, steps: int, sizes: tuple[int, ...], hparams: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        n, alpha = len(sizes), hparams["mixup_alpha"]
        noise = {"permutation": draw_permutations(rng, (steps, n)), "weight": rng.beta(alpha, alpha, (steps, n))}
        if hparams["mixup_inner_permutation"]:
            noise["keys"] = rng.random((steps, n, max(sizes)))
        return noise

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        pairs = cyclic_pairs(batch, noise["permutation"])
        if self.values["mixup_inner_permutation"]:
            pairs = shuffle_second(pairs, noise["keys"])
        w = noise["weight"].view(-1, 1, *[1] * (batch.x.dim() - 1))
        mixed = w * batch.x[pairs.first] + (1 - w) * batch.x[pairs.second]
        logits = torch.stack([nets.logits(u) for u in mixed])  # (n, L, K), one pass per pair
        return Outcome(
            (noise["weight"] * self._risks(logits, batch.y[pairs.first], pairs.weight)).mean()
            + ((1 - noise["weight"]) * self._risks(logits, batch.y[pairs.second], pairs.weight)).mean()
        )

    @staticmethod
    def _risks(logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """(n, L, K) logits -> (n,) risk of each pair."""
        return (F.cross_entropy(logits.movedim(-1, 1), y, reduction="none") * weight).sum(1)

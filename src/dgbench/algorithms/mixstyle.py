"""MixStyle: the pairing of environments around a featurizer that mixes styles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.base import Algorithm
from dgbench.algorithms.contract import Choices
from dgbench.algorithms.pairing import cyclic_pairs, draw_permutations
from dgbench.types import EnvBatch, Networks, Outcome, StyleMix, Tensors


class MixStyle(Algorithm):
    """Mix the feature statistics of images of different environments (Zhou et al., 2021; NICO++'s form).

    ``ms_type=crossdomain``: for the n pairs of a random cyclic order, one pass over [x_i; x_j], in which the images
    of one side borrow the style of the other; L is the mean over pairs of CE. Every image is used twice, so the
    batch size is meant to be half the usual one. ``random``: ERM on X with styles of random rows.

    After each of the stages ``ms_layers`` the featurizer mixes with probability ``ms_p``, weights
    Beta(ms_alpha, ms_alpha) per image, in training only. A featurizer without ``style_stages`` cannot mix; then only
    the pairing is left and the logged ``mixed_stages`` is 0.
    """

    static = frozenset({"ms_type", "ms_layers"})
    choices: ClassVar[Choices] = {"ms_type": ("crossdomain", "random")}
    order_matters = True
    why_not_cacheable = "it mixes styles inside the featurizer, anew at every step"

    def draw_noise(
        self, rng: np.random.Generator, steps: int, sizes: tuple[int, ...], hparams: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        stages = len(str(hparams["ms_layers"]))
        if hparams["ms_type"] == "crossdomain":
            longest, shape = max(sizes), (steps, len(sizes), stages)
            halves = [start + draw_permutations(rng, (*shape, longest)) for start in (longest, 0)]
            partner = np.concatenate(halves, -1)
        else:
            shape = (steps, 1, stages)
            partner = draw_permutations(rng, (*shape, sum(sizes)))
        alpha = hparams["ms_alpha"]
        active = rng.random(shape) <= hparams["ms_p"]
        return {
            "permutation": draw_permutations(rng, (steps, len(sizes))),
            "active": active,
            "weight": rng.beta(alpha, alpha, partner.shape),
            "partner": partner,
        }

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        if self.values["ms_type"] == "random":
            rows = torch.arange(len(batch.y), device=batch.y.device)[None]
            weights = batch.x.new_full(rows.shape, 1 / len(batch.y))
        else:
            pairs = cyclic_pairs(batch, noise["permutation"])
            rows, weights = torch.cat([pairs.first, pairs.second], 1), torch.cat([pairs.weight] * 2, 1) / 2
        x, y = batch.x[rows], batch.y[rows]  # (passes, n, ...)
        logits = torch.stack([self._logits(nets, x[i], noise, i) for i in range(len(x))])
        each = F.cross_entropy(logits.movedim(-1, 1), y, reduction="none")
        return Outcome((each * weights).sum(1).mean(), {"mixed_stages": batch.x.new_full((), len(self._stages()))})

    def _stages(self) -> list[int]:
        able = getattr(self.networks["featurizer"], "style_stages", ())
        return [int(digit) for digit in str(self.values["ms_layers"]) if int(digit) in able]

    def _logits(self, nets: Networks, x: Tensor, noise: Tensors, i: int) -> Tensor:
        stages = self._stages()
        if not stages:
            return nets.logits(x)
        styles = {
            stage: StyleMix(noise["active"][i, k], noise["weight"][i, k], noise["partner"][i, k])
            for k, stage in enumerate(stages)
        }
        return nets.classifier(nets.featurizer(x, styles=styles))

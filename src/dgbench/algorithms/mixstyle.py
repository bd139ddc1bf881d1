"""MixStyle: the pairing of environments around a featurizer that mixes styles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.network_specs import StyleMix
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.pairing import cyclic_pairs
from dgbench.objectives.step import (
    Bernoulli,
    Beta,
    CrossPermutation,
    Outcome,
    Permutation,
    RandomInput,
    RandomInputs,
    Step,
)


class MixStyle(Algorithm):
    """Mix the feature statistics of images of different environments
    (Zhou et al., 2021; NICO++'s form).

    ``ms_type=crossdomain``: for the n pairs of a random cyclic order, one pass over [x_i; x_j], in
    which the images of one side borrow the style of the other; L is the mean over pairs of CE.
    Every image is used twice, so the batch size is meant to be half the usual one. ``random``: ERM
    on X with styles of random rows.

    After each of the stages ``ms_layers`` the featurizer mixes with probability ``ms_p``, weights
    Beta(ms_alpha, ms_alpha) per image, in training only. A featurizer without ``style_stages``
    cannot mix; then only the pairing is left and the logged ``mixed_stages`` is 0.
    """

    static = frozenset({"ms_layers"})
    choices: ClassVar[Choices] = {"ms_type": ("crossdomain", "random")}
    why_not_cacheable = "it mixes styles inside the featurizer, anew at every step"
    why_not_vectors = "it mixes the styles of maps of channels inside the featurizer"

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        stages = len(str(self.values["ms_layers"]))
        about = "the row whose style is borrowed"
        partners: RandomInput
        if self.values["ms_type"] == "crossdomain":
            shape = (len(sizes), stages)
            partners = CrossPermutation((*shape, 2 * max(sizes)), about)
        else:
            shape = (1, stages)
            partners = Permutation((*shape, sum(sizes)), about)
        alpha = self.values["ms_alpha"]
        return {
            "partner": partners,
            "active": Bernoulli(shape, "whether a stage mixes", p=self.values["ms_p"]),
            "permutation": Permutation((len(sizes),), "cyclic order of the environments"),
            "weight": Beta(partners.shape, "weight of a row's own style", alpha=alpha),
        }

    def objective(self, s: Step) -> Outcome:
        if self.values["ms_type"] == "random":
            rows = torch.arange(len(s.y), device=s.y.device)[None]
            weights = s.x.new_full(rows.shape, 1 / len(s.y))
        else:
            pairs = cyclic_pairs(s.batch, s.random["permutation"])
            rows = torch.cat([pairs.first, pairs.second], 1)
            weights = torch.cat([pairs.weight, pairs.weight], 1) / 2
        x = s.x[rows]  # (passes, n, C, H, W)
        y = s.y[rows]  # (passes, n)
        wanted = map(int, str(self.values["ms_layers"]))
        stages = [stage for stage in wanted if stage in s.networks.style_stages()]
        logits = torch.stack([_mixed_logits(s, x[i], i, stages) for i in range(len(x))])
        losses = F.cross_entropy(logits.movedim(-1, 1), y, reduction="none")
        loss = (losses * weights).sum(1).mean()
        return Outcome(loss, {"mixed_stages": s.x.new_full((), len(stages))})


def _mixed_logits(s: Step, x: Tensor, i: int, stages: Sequence[int]) -> Tensor:
    """Compute the (n, K) logits of pass ``i`` over (n, C, H, W) images.

    Styles are mixed after these stages.
    """
    if not stages:
        return s.networks.logits(x)
    active = s.random["active"][i]
    weight = s.random["weight"][i]
    partner = s.random["partner"][i]
    styles = {stage: StyleMix(active[k], weight[k], partner[k]) for k, stage in enumerate(stages)}
    return s.networks.classifier(s.networks.featurizer(x, styles=styles))

"""Mutual information regularization with oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.network_specs import FeaturizerSpec, LinearSpec, NetworkSpec, PerChannelSpec, Sizes
from dgbench.objectives.contract import Algorithm, ParamGroup, Update
from dgbench.objectives.step import Outcome, Step

INITIAL_VARIANCE = 0.1
LEAST_VARIANCE = 1e-5


class MIRO(Algorithm):
    """Stay near the features of the initial network at every depth (Cha et al., 2022; its code).

    The objective is

        L = CE(h(z), Y) + ld * sum_s 1/2 mean [(f_s - f0_s)^2 / v_s + log v_s]

    where f_s are the maps after the stem and after each stage of the featurizer, f0_s those of its
    frozen initial copy, and v_s = softplus(b_s) + 1e-5 one learned variance per channel, 0.1 at
    first; means are over all entries of a map. The b_s are trained at lr * ``lr_mult``.

    It is meant for pretrained weights, without which the copy is a random network, and for a frozen
    BatchNorm: the copy uses its running statistics, so that statistics of the minibatch are far
    from it at once. The second forward pass, without gradient, is its cost. Dropout acts on the
    pooled features, not on the maps. Its table combines it with SWAD, ``averaging=swad``.
    """

    static = frozenset({"lr_mult"})
    why_not_cacheable = "it compares maps between all layers with those of the initial network"

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes),
            "initial": FeaturizerSpec(frozen=True),
            "variances": PerChannelSpec(math.log(math.expm1(INITIAL_VARIANCE - LEAST_VARIANCE))),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {
            "model": ParamGroup(("featurizer", "classifier")),
            "variances": ParamGroup(("variances",)),
        }

    def updates(self, step: int) -> Sequence[Update]:
        return (Update(self.objective, ("model", "variances")),)

    def lr_factor(self, group: str, step: int) -> float:
        return float(self.values["lr_mult"]) if group == "variances" else 1.0

    def objective(self, s: Step) -> Outcome:
        z, maps = s.networks.featurizer(s.x, maps=True)
        _, initial = s.networks.initial(s.x, maps=True)
        risk = s.risk(s.networks.classifier(z))
        layers = zip(maps, initial, s.networks.variances(), strict=True)
        penalty = torch.stack([_distance(*layer) for layer in layers]).sum()
        return Outcome(risk + s.hp.ld * penalty, {"penalty": penalty.detach()})


def _distance(trained: Tensor, initial: Tensor, b: Tensor) -> Tensor:
    """Average over entries the negative log likelihood of the initial map around the trained one.

    Constants are left out.
    """
    variance = F.softplus(b) + LEAST_VARIANCE
    axes = [axis for axis, size in enumerate(b.shape) if size == 1]  # all but that of the channels
    squares = (trained - initial).square().mean(axes, keepdim=True)
    return (squares / variance + variance.log()).mean() / 2

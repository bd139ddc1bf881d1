"""Diversified neural averaging."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, ParamGroup
from dgbench.objectives.step import Bernoulli, Outcome, Prediction, RandomInputs, Step

EPSILON = 1e-6


class DNA(Algorithm):
    """Classify under several dropout masks that should disagree
    (Chu et al., 2022; the authors' code).

    The head is hidden layer, ReLU, dropout, linear. With q_si the probability of image i's class
    under mask s of S (one for each row and s),

        J(q) = log(2 / (1 + q)) + q log(2 q / (1 + q)), which falls from log 2 to 0
        D    = sqrt(J + 1e-6)
        L    = mean_si J(q_si) - lambda_v mean_i (mean_s D_si^2 - (mean_s D_si)^2).

    The method is this loss with SWAD's average of the weights: train with ``averaging=swad`` for
    it. (SWAD as its authors use it there watches J of raw logits, NaN below -1; ours watches the
    cross entropy.) J is computed from log q, so that it stays finite where q underflows. There is
    no dropout in a prediction.
    """

    static = frozenset({"bottleneck_dim", "drop_rate", "samples"})
    heads: ClassVar[tuple[str, ...]] = ("hidden", "classifier")

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        width = hparams["bottleneck_dim"]
        return {
            "hidden": LinearSpec(sizes.n_features, width),
            "classifier": LinearSpec(width, sizes.n_classes),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {"model": ParamGroup(("featurizer", *self.heads))}

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        shape = self.values["samples"], sum(sizes), self.values["bottleneck_dim"]
        return {
            "keep": Bernoulli(shape, "which hidden units are kept", p=1 - self.values["drop_rate"])
        }

    def objective(self, s: Step) -> Outcome:
        hidden = s.networks.hidden(s.features()).relu() / (1 - self.values["drop_rate"])
        masked_hidden = torch.where(s.random["keep"], hidden, 0.0)  # (S, N, width)
        log_p = s.networks.classifier(masked_hidden).log_softmax(2)  # (S, N, K)
        labels = s.y.expand(len(masked_hidden), -1)
        j = divergence(log_p.gather(2, labels[..., None])[..., 0])  # (S, N)
        root = (j + EPSILON).sqrt()
        diversity = (root.square().mean(0) - root.mean(0).square()).mean()
        risk = j.mean()
        logs = {"divergence": risk.detach(), "diversity": diversity.detach()}
        return Outcome(risk - s.hp.lambda_v * diversity, logs)

    def predict(self, s: Prediction) -> Tensor:
        return s.networks.classifier(s.networks.hidden(s.networks.featurizer(s.x)).relu())


def divergence(log_q: Tensor) -> Tensor:
    """Compute J(q) = log(2 / (1 + q)) + q log(2 q / (1 + q)) from log q."""
    q = log_q.exp()
    log_ratio = math.log(2) - q.log1p()
    return log_ratio + q * (log_ratio + log_q)

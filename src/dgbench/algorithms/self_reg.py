"""Self-supervised contrastive regularization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.network_specs import LinearSpec, NetworkSpec, ProjectionSpec, Sizes
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup
from dgbench.objectives.step import Beta, Outcome, RandomInputs, Step, Uniform, penalized

FEATURE_WEIGHT = 0.3
WIDEST = 2048  # features from which on the projection is no wider than they are


class SelfReg(Algorithm):
    """Pull images of one class together, without negative pairs (Kim et al., 2021; DomainBed).

    Every row is paired with two rows of its own class, p and q, which may be of any environment and
    itself. With the features z, the logits l, a projection u = P(z), w ~ Beta(0.5, 0.5) and C =
    min(CE, 1) without a gradient,

        L = CE + C * {w d(l_p, u_p) + (1 - w) d(w l_p + (1-w) l_q, w u_p + (1-w) u_q)}
        d(l', u') = mean (l - l')^2 + 0.3 mean (z - u')^2,

    means over rows and entries. Gradients flow through all of it.

    DomainBed builds the optimizer before P, which keeps its random initial weights
    (``variant=reference``); the method's numbers there are of this form. ``variant=fixed`` trains
    P. (P's BatchNorm uses the minibatch's statistics; its running ones are never used.)
    """

    choices: ClassVar[Choices] = {"variant": ("reference", "fixed")}

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        m = sizes.n_features
        return {
            "classifier": LinearSpec(m, sizes.n_classes),
            "projection": ProjectionSpec(m, m if m == WIDEST else 2 * m),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        trained = ("projection",) if self.values["variant"] == "fixed" else ()
        return {"model": ParamGroup(("featurizer", "classifier", *trained))}

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        return {
            "weight": Beta((), "of the first partner, and of the first distance", alpha=0.5),
            "keys": Uniform(
                (2, sum(sizes)), "whose order within a class gives the two partners of each row"
            ),
        }

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        u = s.networks.projection(z)
        logits = s.networks.classifier(z)
        p, q = (_partners(s.y, keys) for keys in s.random["keys"].unbind())
        w = s.random["weight"]
        l_p = logits[p]
        u_p = u[p]
        l_mixed = w * l_p + (1 - w) * logits[q]
        u_mixed = w * u_p + (1 - w) * u[q]
        near = F.mse_loss(logits, l_p) + FEATURE_WEIGHT * F.mse_loss(z, u_p)
        mixed = F.mse_loss(logits, l_mixed) + FEATURE_WEIGHT * F.mse_loss(z, u_mixed)
        risk = s.risk(logits)
        return penalized(risk, risk.detach().clamp_max(1.0), w * near + (1 - w) * mixed)


def _partners(y: Tensor, keys: Tensor) -> Tensor:
    """Find each row's partner in its class, (N,) row numbers.

    The rows of a class in their order stand beside the same rows in the order of their keys.
    """
    in_order = y.argsort(stable=True)
    by_key = keys.argsort()
    by_key = by_key[y[by_key].argsort(stable=True)]
    return torch.zeros_like(y).scatter(0, in_order, by_key)

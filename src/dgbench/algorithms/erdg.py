"""Entropy regularization for domain generalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup, Update
from dgbench.objectives.gradients import detached, scale_gradient
from dgbench.objectives.step import Outcome, Step

MAIN = ("model", "discriminator", "rivals")


class ERDG(Algorithm):
    """Align the conditional distributions of the classes (Zhao et al., 2020; OoD-Bench).

    Linear heads see the features z: a discriminator D, and per environment i an expert T_i and a
    rival T'_i. Each step first trains the experts, with z constant, on

        L1 = mean_i CE(T_i(z_i), y_i).

    Then, with another forward pass, each network follows its loss:

        h            L_main = CE(h(z), Y)
        D            L_dis  = CE(D(z), environment)
        rivals       L_cp   = mean_i CE(T'_i(z_i), y_i)
        featurizer   L_main - lbd_d L_dis + lbd_c L_oth - lbd_cp L_cp

    where L_oth = mean_i CE(T_i(rows of all other environments), their y).

    ``erdg_clearing=remove``: a network without a gradient is not stepped. ``zero``: it takes an
    Adam step with gradient zero (momentum, decay) once it has had one, as with PyTorch before 2.0.
    """

    choices: ClassVar[Choices] = {"erdg_clearing": ("remove", "zero")}
    min_envs = 2  # L_oth needs another environment
    why_not_sharp = "featurizer, discriminator and rivals follow different losses in one update"

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        m, k, n = sizes.n_features, sizes.n_classes, sizes.n_envs
        head = LinearSpec(m, k, xavier_gain=0.1)
        return {
            "classifier": LinearSpec(m, k),
            "discriminator": LinearSpec(m, n, xavier_gain=0.1),
            **dict.fromkeys(_names("expert", n), head),
            **dict.fromkeys(_names("rival", n), head),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {
            "model": ParamGroup(("featurizer", "classifier")),
            "discriminator": ParamGroup(("discriminator",), "lr_d"),
            "experts": ParamGroup(_names("expert", self.sizes.n_envs), "lr_c"),
            "rivals": ParamGroup(_names("rival", self.sizes.n_envs), "lr_cp"),
        }

    def updates(self, step: int) -> Sequence[Update]:
        zero = self.values["erdg_clearing"] == "zero"
        idle_first = MAIN if zero and step > 0 else ()
        idle_then = ("experts",) if zero else ()
        return (
            Update(self.train_experts, ("experts", *idle_first)),
            Update(self.objective, (*MAIN, *idle_then)),
        )

    def train_experts(self, s: Step) -> Outcome:
        """Compute L1, the experts' mean risk on their own environments.

        The features are constants.
        """
        risk = _own_risk(s, "expert", s.features().detach())
        return Outcome(risk + self._zero(s), {"own": risk.detach()})

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        main = s.risk(s.networks.classifier(z))
        # one scalar serves everyone: scaled on the way back to the featurizer only
        scaled = scale_gradient(z, -s.hp.lbd_d)
        environment = F.cross_entropy(s.networks.discriminator(scaled), s.env)
        rival = _own_risk(s, "rival", scale_gradient(z, -s.hp.lbd_cp))
        other_risk = _other_risk(s, z)
        logs = {"main": main, "discriminator": environment, "others": other_risk, "rival": rival}
        loss = main + environment + s.hp.lbd_c * other_risk + rival + self._zero(s)
        return Outcome(loss, detached(logs))

    def _zero(self, s: Step) -> Tensor | float:
        """Return 0.

        With ``erdg_clearing=zero`` it is a sum that gives every parameter a gradient of zero.
        """
        if self.values["erdg_clearing"] == "remove":
            return 0.0
        zeros = [0.0 * value.sum() for value in s.networks.params().values()]
        return torch.stack(zeros).sum()


def _names(kind: str, n: int) -> tuple[str, ...]:
    return tuple(f"{kind}_{i}" for i in range(n))


def _without(parts: Sequence[Tensor], i: int) -> Tensor:
    """Join the rows of all parts but part i."""
    return torch.cat([part for j, part in enumerate(parts) if j != i])


def _other_risk(s: Step, z: Tensor) -> Tensor:
    """Average over environments the cross entropy of each expert, fixed, on all other rows."""
    names = _names("expert", len(s.sizes))
    fixed = s.networks.bind(detached(s.networks.params(*names)))
    parts = s.split(z)
    labels = s.split(s.y)
    risks = []
    for i, name in enumerate(names):
        logits = getattr(fixed, name)(_without(parts, i))
        risks.append(F.cross_entropy(logits, _without(labels, i)))
    return torch.stack(risks).mean()


def _own_risk(s: Step, kind: str, z: Tensor) -> Tensor:
    """Average over environments the cross entropy of each environment's head on its own rows."""
    risks = []
    for name, part, y in zip(_names(kind, len(s.sizes)), s.split(z), s.split(s.y), strict=True):
        logits = getattr(s.networks, name)(part)
        risks.append(F.cross_entropy(logits, y))
    return torch.stack(risks).mean()

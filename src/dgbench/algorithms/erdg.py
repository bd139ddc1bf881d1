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

    Linear heads on the features z: discriminator D, and per environment i an expert T_i and a rival
    T'_i. Each step first trains the experts, L1 = mean_i CE(T_i(z_i), y_i) with z constant. Then,
    with another forward pass, h follows L_main = CE(h(z), Y), D follows L_dis = CE(D(z),
    environment), the rivals follow L_cp = mean_i CE(T'_i(z_i), y_i), and the featurizer follows
    L_main - lbd_d L_dis + lbd_c L_oth - lbd_cp L_cp, where L_oth = mean_i CE(T_i(rows of all other
    environments), their y).

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
        heads = {name: head for kind in ("expert", "rival") for name in _names(kind, n)}
        return {
            "classifier": LinearSpec(m, k),
            "discriminator": LinearSpec(m, n, xavier_gain=0.1),
            **heads,
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
        """Compute L1, the experts' mean risk on their own environments; the features are constants."""
        risk = _own_risk(s, "expert", s.features().detach())
        return Outcome(risk + self._zero(s), {"own": risk.detach()})

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        main = s.risk(s.networks.classifier(z))
        # one scalar serves everyone: scaled on the way back to the featurizer only
        environment = F.cross_entropy(
            s.networks.discriminator(scale_gradient(z, -s.hp.lbd_d)), s.env
        )
        rival = _own_risk(s, "rival", scale_gradient(z, -s.hp.lbd_cp))
        fixed = s.networks.bind(detached(s.networks.params(*_names("expert", len(s.sizes)))))
        parts, labels = s.split(z), s.split(s.y)
        risks = [
            F.cross_entropy(
                getattr(fixed, name)(torch.cat(_but(parts, i))), torch.cat(_but(labels, i))
            )
            for i, name in enumerate(_names("expert", len(parts)))
        ]
        other_risk = torch.stack(risks).mean()
        logs = {"main": main, "discriminator": environment, "others": other_risk, "rival": rival}
        loss = main + environment + s.hp.lbd_c * other_risk + rival + self._zero(s)
        return Outcome(loss, detached(logs))

    def _zero(self, s: Step) -> Tensor | float:
        """Return 0, with ``erdg_clearing=zero`` as a sum that gives every parameter a gradient of
        zero.
        """
        if self.values["erdg_clearing"] == "remove":
            return 0.0
        return torch.stack([0.0 * value.sum() for value in s.networks.params().values()]).sum()


def _names(kind: str, n: int) -> tuple[str, ...]:
    return tuple(f"{kind}_{i}" for i in range(n))


def _but(parts: Sequence[Tensor], i: int) -> list[Tensor]:
    return [part for j, part in enumerate(parts) if j != i]


def _own_risk(s: Step, kind: str, z: Tensor) -> Tensor:
    """Average over environments the cross entropy of each environment's head on its own rows."""
    cut = zip(_names(kind, len(s.sizes)), s.split(z), s.split(s.y), strict=True)
    return torch.stack(
        [F.cross_entropy(getattr(s.networks, name)(part), y) for name, part, y in cut]
    ).mean()

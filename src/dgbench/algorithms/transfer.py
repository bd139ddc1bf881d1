"""Transfer: minimize how far any classifier nearby could tell the environments apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import Networks
from dgbench.objectives.contract import Algorithm, ParamGroup, Update
from dgbench.objectives.step import Outcome, Step

HEAD = ("weight", "bias")  # of a linear layer


class Transfer(Algorithm):
    """Make features on which a classifier nearby works equally well everywhere
    (Zhang et al., 2021; DomainBed).

    An adversary h', linear like the classifier h, has on the features

        gap(h') = max_e R_e - min_e R_e.

    A step:

    1. Adam on CE(h(Phi(X)), Y) for featurizer and classifier.
    2. With another forward pass, the same Adam on t_lambda gap(h') for the featurizer; h' is that
       of the last step.
    3. h' <- h; then ``d_steps_per_g`` times h' <- h' + lr_d t_lambda grad gap(h'), put back to
       distance ``delta`` of h, weights and bias together, where it went further.

    Featurizer and classifier are two groups, each with its own Adam, so that 2 leaves the
    classifier's moments alone. With one environment the gap is 0.

    DomainBed's search always draws its option ``gda``, with which Phi and h are not trained: its
    published numbers are suspect. The option is not offered here (it is lr = 0), nor are the drawn
    and unused ``weight_decay_d`` and ``beta1``. The features of 3 are computed once, and not at
    every ascent step, which makes a difference to dropout and to running statistics of an unfrozen
    BatchNorm only.
    """

    static = frozenset({"d_steps_per_g"})

    def param_groups(self) -> dict[str, ParamGroup]:
        return {name: ParamGroup((name,)) for name in ("featurizer", "classifier")}

    def updates(self, step: int) -> Sequence[Update]:
        return (
            Update(self.objective, ("featurizer", "classifier")),
            Update(self.close, ("featurizer",)),
            Update(self.ascend, ()),
        )

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        params = networks.params("classifier")
        return {name: params[f"classifier.{name}"].detach().clone() for name in HEAD}

    def objective(self, s: Step) -> Outcome:
        return Outcome(s.risk(s.logits()))

    def close(self, s: Step) -> Outcome:
        """Compute the gap, times t_lambda, of the adversary that the last step left."""
        loss = s.hp.t_lambda * _gap(s, s.separate_features(), (s.state["weight"], s.state["bias"]))
        return Outcome(loss, {"gap": loss.detach()})

    def ascend(self, s: Step) -> Outcome:
        """Find a new adversary by ascent.

        The loss is its gap, times t_lambda, before the last ascent step.
        """
        z = s.separate_features().detach()

        def weighted_gap(head: tuple[Tensor, ...]) -> Tensor:
            return s.hp.t_lambda * _gap(s, z, head)

        params = s.networks.params("classifier")
        center = tuple(params[f"classifier.{name}"].detach() for name in HEAD)
        head = center
        gap = z.new_zeros(())
        for _ in range(self.values["d_steps_per_g"]):
            slopes, gap = torch.func.grad_and_value(weighted_gap)(head)
            moved = [
                h + s.hp.lr_d * slope - c for h, slope, c in zip(head, slopes, center, strict=True)
            ]
            distance = torch.stack([part.square().sum() for part in moved]).sum().sqrt()
            factor = torch.where(distance > s.hp.delta, s.hp.delta / distance, 1.0)
            head = tuple(c + factor * part for c, part in zip(center, moved, strict=True))
        return Outcome(gap, {"adversary_gap": gap}, dict(zip(HEAD, head, strict=True)))


def _gap(s: Step, z: Tensor, head: tuple[Tensor, ...]) -> Tensor:
    """Compute the largest minus the smallest risk of a linear head on (N, m) features."""
    risks = s.environment_risks(F.linear(z, *head))
    # one environment each, also where several are equal
    return risks.max(0).values - risks.min(0).values

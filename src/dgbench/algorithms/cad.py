"""Contrastive adversarial domain bottleneck."""

from __future__ import annotations

from typing import ClassVar

from torch.nn import functional as F

from dgbench.objectives.bottleneck import domain_bottleneck
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.step import Outcome, Step


class CAD(Algorithm):
    """Make images of other environments as near as those of one's own (Ruan et al., 2022; DomainBed).

    L = CE(l, Y) + lmbda * P, P the contrastive bound of :func:`domain_bottleneck` on what the features tell about the
    environment. One environment: plain pooled risk.

    ``is_flipped`` on maximizes the likelihood of the other environments' rows; off minimizes that of the own, among
    which DomainBed counts the row itself with similarity 0 (never drawn). ``is_normalized`` gives features unit length
    for P (never drawn). DomainBed's third switch, a projection before P, ends in an error there and is left out.
    """

    static = frozenset({"is_normalized", "is_flipped"})
    choices: ClassVar[Choices] = {"is_normalized": (True, False), "is_flipped": (True, False)}
    conditional: ClassVar[bool] = False

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        risk = s.risk(s.networks.classifier(z))
        u = F.normalize(z) if self.values["is_normalized"] else z
        penalty = domain_bottleneck(
            u, s.y, s.env, s.hp.temperature, conditional=self.conditional, flipped=self.values["is_flipped"]
        )
        return Outcome(risk + s.hp.lmbda * penalty, {"penalty": penalty.detach(), "penalty_weight": s.hp.lmbda})

"""Sharpness-aware minimization."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from dgbench.objectives import sharpness
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.gradients import MODEL
from dgbench.objectives.step import Outcome, Step


class SharpnessAware(Algorithm):
    """Take a gradient here, one at raised weights, and an update from both, as SAM and its like do.

    g is the gradient at theta of what :meth:`ascent_loss` says, g' that of the mean cross entropy
    over all N rows at theta' = theta + (a length) g; Adam steps from theta on what :meth:`method`
    makes of both. A step makes two passes over the images; the second draws dropout masks of its
    own. Decay is Adam's alone and not in g.
    """

    why_not_in_parts = "each part of a minibatch would climb on its own"
    why_not_sharp = "it looks at raised weights itself"

    def objective(self, s: Step) -> Outcome:
        names = tuple(s.networks.params(*MODEL))
        return sharpness.Sharpened(self.method(s), self.risk, names, self.ascent_outcome)(s)

    def method(self, s: Step) -> sharpness.SAM:
        """Return the rule that says how to climb, and what to follow."""
        return sharpness.SAM(s.hp.rho)

    def risk(self, s: Step) -> Outcome:
        """Compute the mean cross entropy over all rows."""
        return Outcome(s.risk(s.logits()))

    def ascent_outcome(self, s: Step) -> Outcome:
        """Compute the loss that is climbed on at theta.

        Logs are the mean cross entropy and the variance of the risks.
        """
        logits = s.logits()
        risk = s.risk(logits)
        risks = s.environment_risks(logits)
        logs = {"cross_entropy": risk.detach(), "variance": risks.detach().var(correction=0)}
        return Outcome(self.ascent_loss(s, risk, risks), logs)

    def ascent_loss(self, s: Step, risk: Tensor, risks: Tensor) -> Tensor:
        """Map the mean cross entropy and the (E,) risks to the loss that is climbed on.

        Its value is the mean cross entropy; its gradient may be another.
        """
        return risk


class SAM(SharpnessAware):
    """Minimize the risk at the worst weights nearby (Foret et al., 2021; SWAD's repository).

    The gradients and the update are

        g      = grad CE(theta)
        theta' = theta + rho g / |g|
        g'     = grad CE(theta')
        update = g'.

    The loss is that at theta'. Where g is 0 the original divides by 0; here 1e-12 is added to |g|.

    ``sharpness=gsam`` (Zhuang et al., 2022; in the code of SAGM) also narrows the gap between the
    two risks: the update follows g' - alpha (g - (g . g' / |g'|^2) g'), and the loss is that at
    theta. Around any other algorithm, both are ``sharpness=sam`` and ``sharpness=gsam`` of the
    command.
    """

    choices: ClassVar[Choices] = {"sharpness": ("sam", "gsam")}

    def method(self, s: Step) -> sharpness.SAM:
        if self.values["sharpness"] == "gsam":
            return sharpness.GSAM(s.hp.rho, s.hp.alpha)
        return super().method(s)

"""Sharpness-aware minimization."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dgbench.modules import BoundNetworks
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.gradients import MODEL, detached, inner_product, risk_and_gradient
from dgbench.objectives.step import Outcome, Step
from dgbench.tensors import Tensors

EPSILON = 1e-12


class SharpnessAware(Algorithm):
    """What SAM and its successors share: a gradient here, a gradient at raised weights, and an update from both.

    g is the gradient at theta of what :meth:`climbed` says, g' that of the mean cross entropy over all N rows at
    theta' = theta + :meth:`length` g; Adam steps from theta on :meth:`direction`. A step makes two passes over the
    images; the second draws dropout masks of its own. Decay is Adam's alone and not in g.

    Parts of a minibatch (accumulation, several processes) climb each on its own, which is another method.
    """

    @property
    def reports_above(self) -> bool:
        """The loss is that at theta', and the pass there moves running statistics of BatchNorm a second time."""
        return True

    def objective(self, s: Step) -> Outcome:
        params = detached(s.networks.params(*MODEL))
        shares = torch.cat([s.x.new_full((1,), size / len(s.y)) for size in s.sizes])

        def risks(nets: BoundNetworks) -> Tensor:
            return s.environment_risks(nets.logits(s.x))

        here, g = risk_and_gradient(s.networks, params, risks, weights=lambda found: self.climbed(s, found, shares))
        norm = inner_product(g, g).sqrt()
        length = self.length(s, norm)
        above = {key: value + length * g[key] for key, value in params.items()}
        there, g_above = risk_and_gradient(
            s.networks, above, risks, keep_statistics=self.reports_above, weights=lambda _: shares
        )
        loss, raised = (shares * here).sum().detach(), (shares * there).sum().detach()
        logs = {
            "cross_entropy": loss, "sharpness": raised - loss, "gradient_norm": norm,
            "variance": here.detach().var(correction=0),
        }  # fmt: skip
        return Outcome(raised if self.reports_above else loss, logs, grads=self.direction(s, g, g_above))

    def climbed(self, s: Step, risks: Tensor, shares: Tensor) -> Tensor:
        """(E,) risks at theta and shares of the rows -> (E,) weights of the risks' gradients in g."""
        return shares

    def length(self, s: Step, norm: Tensor) -> Tensor:
        """Step to theta' in parts of g, from the norm of g over all parameters that train."""
        return s.hp.rho / (norm + EPSILON)

    def direction(self, s: Step, g: Tensors, g_above: Tensors) -> Tensors:
        """What Adam is given."""
        return g_above


class SAM(SharpnessAware):
    """Minimize the risk at the worst weights nearby (Foret et al., 2021; SWAD's repository).

    theta' = theta + rho g / |g|, g = grad CE(theta), and the update follows g' = grad CE(theta'); the loss is that at
    theta'. Where g is 0 the original divides by 0; here 1e-12 is added to |g|.

    ``sharpness=gsam`` (Zhuang et al., 2022; in the code of SAGM) also narrows the gap between the two risks: the
    update follows g' - alpha (g - (g . g' / |g'|^2) g'), and the loss is that at theta.
    """

    static = frozenset({"sharpness"})
    choices: ClassVar[Choices] = {"sharpness": ("sam", "gsam")}

    @property
    def reports_above(self) -> bool:
        return bool(self.values["sharpness"] != "gsam")

    def direction(self, s: Step, g: Tensors, g_above: Tensors) -> Tensors:
        if self.values["sharpness"] != "gsam":
            return g_above
        size = inner_product(g_above, g_above).sqrt() + EPSILON
        along = inner_product(g, g_above) / size / size
        return {key: up - s.hp.alpha * (g[key] - along * up) for key, up in g_above.items()}

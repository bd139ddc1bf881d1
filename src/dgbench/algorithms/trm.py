"""Transfer risk minimization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from dgbench.containers import Networks
from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.pairing import pair_rows
from dgbench.objectives.step import Outcome, Step

FITTING_STEPS = 30
FITTING_LR = 0.1
NEUMANN_STEPS = 10
NEUMANN_LIMIT = 10.0


class TRM(Algorithm):
    """Make each environment's best classifier work in the others
    (Xu and Jaakkola, 2021; DomainBed).

    Each environment Q has an expert, a linear classifier fitted to its features by 30 gradient
    steps from where it was. l_Qi is the expert's risk on environment i, and both of these are
    gradients in its weights:

        G_Q = grad l_QQ
        v_Q = grad S_Q, with S_Q = sum_{i != Q} alpha_Qi l_Qi.

    From step ``iters`` on

        L = CE(h(z), Y) + mean_Q [S_Q - cos_lambda <a_Q, G_Q>]
        alpha_Qi <- alpha_Qi exp(groupdro_eta alpha_Qi l_Qi),

    where a_Q, a constant, approximates H_QQ^-1 v_Q by 10 terms of Neumann's series, fewer where it
    grows beyond 10, and the rows of alpha are normalized at the next step. Experts are constants
    too: all of it acts on the features. One pass over the network; the rest is linear algebra on
    features, of E experts on all rows.

    DomainBed's series starts from 2 (v - Hv), since its start value is overwritten in place
    (``trm_neumann=reference``; ``paper``: from v). The gradient of S_Q uses the new alpha, which it
    writes over the old one behind the back of the differentiation (``trm_alpha=reference``;
    ``consistent``: the old one, as the value does). Its ``class_balanced`` gives every expert the
    weights of h before it is fitted, but not the biases; here it does not balance minibatches.
    """

    choices: ClassVar[Choices] = {
        "class_balanced": (True, False),
        "trm_neumann": ("reference", "paper"),
        "trm_alpha": ("reference", "consistent"),
    }
    min_envs = 2

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        m, k = sizes.n_features, sizes.n_classes
        return {"classifier": LinearSpec(m, k), "experts": LinearSpec(m, sizes.n_envs * k)}

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        """Start the experts from the rows of the network ``experts``.

        The network itself is not used any more.
        """
        params = dict(networks["experts"].named_parameters())
        n = self.sizes.n_envs
        return {
            "weight": params["weight"].detach().view(n, -1, self.sizes.n_features).clone(),
            "bias": params["bias"].detach().view(n, -1).clone(),
            "alpha": 1 - torch.eye(n),
        }

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        risk = s.risk(s.networks.classifier(z))
        active = s.step >= s.hp.iters
        # finite while it is not used, its gradient too
        swap, new = self._swap(s, torch.where(active, z, 0.0))
        penalty = torch.where(active, swap, 0.0)
        state = {name: torch.where(active, value, s.state[name]) for name, value in new.items()}
        return Outcome(risk + penalty, {"penalty": penalty.detach()}, state)

    def _swap(self, s: Step, z: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the term that is added to the risk, and the new state.

        Axis q numbers the experts.
        """
        experts = torch.arange(len(s.sizes), device=z.device)
        off_diagonal = experts[:, None] != experts
        alpha, mask = s.state["alpha"], off_diagonal.to(z.dtype)
        alpha = alpha / alpha.sum(1, keepdim=True)
        pairs = pair_rows(s.batch, experts, experts)
        weight, bias = self._fitted(s, z.detach()[pairs.first], pairs.first, pairs.weight)

        # (E, N, K) logits of every expert on all rows, (E, E) its risks on every environment
        logits = torch.einsum("nm,qkm->qnk", z, weight) + bias[:, None]
        log_p = logits.log_softmax(2)
        onehot = (s.y[:, None] == torch.arange(logits.shape[2], device=z.device)).to(z.dtype)
        losses = -(log_p * onehot).sum(2)
        risks = torch.stack([part.mean(1) for part in torch.split(losses, list(s.sizes), 1)], 1)
        growth = (s.hp.groupdro_eta * alpha * risks.detach()).exp()
        new_alpha = torch.where(off_diagonal, alpha * growth, alpha)
        swapped = (mask * alpha * risks).sum(1)
        if self.values["trm_alpha"] == "reference":
            surrogate = (mask * new_alpha * risks).sum(1)
            swapped = swapped.detach() + surrogate - surrogate.detach()

        residual = log_p.exp() - onehot
        counts = torch.stack([z.new_full((), size) for size in s.sizes])
        row_weights = (mask * alpha / counts)[:, s.env]
        v = torch.einsum("qnk,nm->qkm", residual.detach() * row_weights[..., None], z.detach())
        # each expert on its own rows
        scores = logits.gather(1, pairs.first[..., None].expand(-1, -1, logits.shape[2]))
        a = neumann(
            z.detach()[pairs.first],
            scores.detach().softmax(2),
            pairs.weight,
            v,
            overwritten=self.values["trm_neumann"] == "reference",
        )
        own_residual = scores.softmax(2) - onehot[pairs.first]
        slope = (own_residual * torch.einsum("qkm,qlm->qlk", a, z[pairs.first])).sum(2)
        swap = (swapped - s.hp.cos_lambda * (pairs.weight * slope).sum(1)).mean()
        return swap, {"weight": weight, "bias": bias, "alpha": new_alpha}

    def _fitted(self, s: Step, z: Tensor, rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Fit the experts to the rows of their own environments.

        Args:
            s: the step.
            z: (E, L, m) features of those rows.
            rows: (E, L) their numbers.
            weights: (E, L), of the rows.

        Returns:
            (E, K, m) weights and (E, K) biases.
        """
        weight = s.state["weight"].detach()
        bias = s.state["bias"].detach()
        if self.values["class_balanced"]:
            weight = s.networks.params("classifier")["classifier.weight"].detach().expand_as(weight)
        classes = torch.arange(weight.shape[1], device=z.device)
        onehot = (s.y[rows][..., None] == classes).to(z.dtype)
        for _ in range(FITTING_STEPS):
            residual = ((z @ weight.mT + bias[:, None]).softmax(2) - onehot) * weights[..., None]
            weight = weight - FITTING_LR * residual.mT @ z
            bias = bias - FITTING_LR * residual.sum(1)
        return weight, bias


def neumann(z: Tensor, p: Tensor, weights: Tensor, v: Tensor, overwritten: bool) -> Tensor:
    """Approximate H^-1 v by Neumann's series.

    H is the Hessian of a linear classifier's cross entropy in its weights.

    Args:
        z: (E, L, m) features, of E classifiers.
        p: (E, L, K) their probabilities.
        weights: (E, L) of the rows.
        v: (E, K, m).
        overwritten: the first term of the sum is 2 (v - Hv) instead of v + (v - Hv).
    """
    total = v
    active = torch.ones_like(v[:, :1, :1], dtype=torch.bool)
    for i in range(NEUMANN_STEPS):
        u = z @ v.mT
        curvature = p * u - p * (p * u).sum(2, keepdim=True)
        v = v - (curvature * weights[..., None]).mT @ z
        longer = 2 * v if overwritten and i == 0 else total + v
        total = torch.where(active, longer, total)
        active = active & (total.abs().amax((1, 2), keepdim=True) <= NEUMANN_LIMIT)
    return total

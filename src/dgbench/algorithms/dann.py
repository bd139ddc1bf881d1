"""Domain-adversarial neural networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.network_specs import LinearSpec, MLPSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup, Update
from dgbench.objectives.step import Outcome, Step


class DANN(Algorithm):
    """Make features from which a discriminator cannot tell the environment
    (Ganin et al., 2016; DomainBed).

    The discriminator Q and the model have the losses

        L_D = CE(Q(z), environment) + grad_penalty * mean_i |dS/dz_i|^2
        L_G = CE(h(z), Y) - lambda * L_D.

    With k = ``d_steps_per_g_step`` and c = step + 1, step c trains the discriminator if c mod (1+k)
    < k, otherwise featurizer and classifier: one of the two per step.

    ``dann_gp=ce``: S is the summed cross entropy (DomainBed since August 2022). ``softmax_column``:
    S = sum_i sum_e N_e softmax(Q(z_i))_e, a slip of the earlier code, constant for equal
    minibatches.
    """

    static = frozenset({"d_steps_per_g_step", "mlp_width", "mlp_depth", "mlp_dropout"})
    off_at_zero = frozenset({"grad_penalty"})
    choices: ClassVar[Choices] = {"dann_gp": ("ce", "softmax_column")}

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes),
            "discriminator": MLPSpec(
                sizes.n_features,
                sizes.n_envs,
                hparams["mlp_width"],
                hparams["mlp_depth"],
                hparams["mlp_dropout"],
            ),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {
            "generator": ParamGroup(
                ("featurizer", "classifier"), "lr_g", "weight_decay_g", "beta1", 0.9
            ),
            "discriminator": ParamGroup(("discriminator",), "lr_d", "weight_decay_d", "beta1", 0.9),
        }

    def updates(self, step: int) -> Sequence[Update]:
        k = self.values["d_steps_per_g_step"]
        if (step + 1) % (1 + k) < k:
            return (Update(self.discriminate, ("discriminator",)),)
        return (Update(self.objective, ("generator",)),)

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        adversary, logs = self._discriminator_loss(s, z)
        return Outcome(s.risk(s.networks.classifier(z)) - s.hp["lambda"] * adversary, logs)

    def discriminate(self, s: Step) -> Outcome:
        """Compute the discriminator's loss; the features are constants."""
        return Outcome(*self._discriminator_loss(s, s.features().detach()))

    def discriminator_input(self, s: Step, z: Tensor) -> Tensor:
        """Form the (N, m) input of the discriminator."""
        return z

    def row_weights(self, s: Step) -> Tensor:
        """Compute the (N,) weights of the rows in the discriminator's cross entropy."""
        return s.x.new_full((len(s.y),), 1 / len(s.y))

    def _discriminator_loss(self, s: Step, z: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute L_D, and the parts of it that are logged."""

        def scored(u: Tensor) -> tuple[Tensor, Tensor]:
            out = s.networks.discriminator(u)
            losses = F.cross_entropy(out, s.env, reduction="none")
            return self._sum_to_penalize(s, out, losses), losses

        inputs = self.discriminator_input(s, z)
        if not self.values["grad_penalty"]:
            loss: Tensor = (self.row_weights(s) * scored(inputs)[1]).sum()
            return loss, {"discriminator_loss": loss.detach()}
        slopes, losses = torch.func.grad(scored, has_aux=True)(inputs)
        loss = (self.row_weights(s) * losses).sum()
        penalty = slopes.pow(2).sum(1).mean()
        logs = {"discriminator_loss": loss.detach(), "gradient_penalty": penalty.detach()}
        return loss + s.hp.grad_penalty * penalty, logs

    def _sum_to_penalize(self, s: Step, out: Tensor, losses: Tensor) -> Tensor:
        """Compute S from (N, E) outputs and (N,) losses of the discriminator."""
        if self.values["dann_gp"] == "ce":
            return losses.sum()
        totals = out.softmax(1).sum(0).unbind()
        terms = [size * total for size, total in zip(s.sizes, totals, strict=True)]
        return torch.stack(terms).sum()

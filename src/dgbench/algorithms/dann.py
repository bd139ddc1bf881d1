"""Domain-adversarial neural networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.base import Algorithm
from dgbench.algorithms.contract import Choices
from dgbench.types import EnvBatch, LinearSpec, MLPSpec, Networks, NetworkSpec, Outcome, Phase, Player, Sizes, Tensors


class DANN(Algorithm):
    """Make features from which a discriminator cannot tell the environment (Ganin et al., 2016; DomainBed).

    L_D = CE(Q(z), environment) + grad_penalty * mean_i |dS/dz_i|^2 and L_G = CE(h(z), Y) - lambda * L_D. With
    k = ``d_steps_per_g_step`` and c = step + 1, step c trains the discriminator Q if c mod (1+k) < k, otherwise
    featurizer and classifier: one of the two per step.

    ``dann_gp=ce``: S is the summed cross entropy (DomainBed since August 2022). ``softmax_column``:
    S = sum_i sum_e N_e softmax(Q(z_i))_e, a slip of the earlier code, constant for equal minibatches.
    """

    static = frozenset({"d_steps_per_g_step", "mlp_width", "mlp_depth", "mlp_dropout", "dann_gp"})
    off_at_zero = frozenset({"grad_penalty"})
    choices: ClassVar[Choices] = {"dann_gp": ("ce", "softmax_column")}
    order_matters = True  # outputs of the discriminator belong to positions

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes),
            "discriminator": MLPSpec(
                sizes.n_features, sizes.n_envs, hparams["mlp_width"], hparams["mlp_depth"], hparams["mlp_dropout"]
            ),
        }

    def players(self) -> dict[str, Player]:
        return {
            "generator": Player(("featurizer", "classifier"), "lr_g", "weight_decay_g", "beta1", 0.9),
            "discriminator": Player(("discriminator",), "lr_d", "weight_decay_d", "beta1", 0.9),
        }

    def phases(self, step: int) -> Sequence[Phase]:
        k = self.values["d_steps_per_g_step"]
        if (step + 1) % (1 + k) < k:
            return (Phase(self.discriminate, ("discriminator",)),)
        return (Phase(self.objective, ("generator",)),)

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        z = nets.featurizer(batch.x)
        adversary = self._discriminator_loss(nets, z, batch, hp)
        return Outcome(F.cross_entropy(nets.classifier(z), batch.y) - hp["lambda"] * adversary)

    def discriminate(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        """The discriminator's loss; the features are constants."""
        return Outcome(self._discriminator_loss(nets, nets.featurizer(batch.x).detach(), batch, hp))

    def discriminator_input(self, nets: Networks, z: Tensor, y: Tensor) -> Tensor:
        """(N, m) what the discriminator sees."""
        return z

    def row_weights(self, batch: EnvBatch) -> Tensor:
        """(N,) weight of each row in the discriminator's cross entropy."""
        return batch.x.new_full((len(batch.y),), 1 / len(batch.y))

    def _discriminator_loss(self, nets: Networks, z: Tensor, batch: EnvBatch, hp: Tensors) -> Tensor:
        def scored(u: Tensor) -> tuple[Tensor, Tensor]:
            out = nets.discriminator(u)
            each = F.cross_entropy(out, batch.env, reduction="none")
            return self._sum_to_penalize(out, each, batch), each

        seen = self.discriminator_input(nets, z, batch.y)
        if not self.values["grad_penalty"]:
            return (self.row_weights(batch) * scored(seen)[1]).sum()
        slopes, each = torch.func.grad(scored, has_aux=True)(seen)
        loss: Tensor = (self.row_weights(batch) * each).sum() + hp["grad_penalty"] * slopes.pow(2).sum(1).mean()
        return loss

    def _sum_to_penalize(self, out: Tensor, each: Tensor, batch: EnvBatch) -> Tensor:
        if self.values["dann_gp"] == "ce":
            return each.sum()
        totals = out.softmax(1).sum(0).unbind()
        return torch.stack([size * total for size, total in zip(batch.sizes, totals, strict=True)]).sum()

"""ADRMX: additive disentanglement of domain features with remix loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.network_specs import FeaturizerSpec, MLPSpec, NetworkSpec, Sizes, TaperedSpec
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup, Update
from dgbench.objectives.gradients import detached
from dgbench.objectives.step import Outcome, RandomInputs, Step, Uniform

TEMPERATURE = 0.07
EPSILON = 1e-5


class ADRMX(Algorithm):
    """Subtract what a second featurizer knows of the environment (Demirel et al., 2023; DomainBed).

    There are features z_1 of the featurizer, z_2 of the domain featurizer and z = z_1 - z_2, a
    discriminator Q on z, the classifier C_1, a second one C_2, and a classifier C_d of
    environments. The two losses are

        L_D = CE(Q(z), environment)
        L_G = CE(C_1(z_1), Y) + CE(C_2(z), Y)
              + dclf_lambda CE(C_d(z_2), environment)
              + rmxd_lambda R
              + cnt_lambda [S(z_1) + S(z)]
              - disc_lambda L_D

    with the supervised contrastive loss S and the remix loss R: for two rows a, b of each class,
    CE(C_1(z[a] + z_2[b])), summed over classes and divided by K.

    With k = ``d_steps_per_g_step`` and c = step + 1, step c trains Q on L_D if c mod (1+k) < k,
    everything else on L_G otherwise: one step in k + 1. Predictions are C_1's.

    DomainBed takes a and b below the class's count, but among all rows, so mostly rows of the first
    environment and of any class, with the label of a (``adrmx_remix=reference``; ``fixed``: rows of
    the class). Published numbers are of the former. Its weight decay is always 0.
    """

    static = frozenset({"d_steps_per_g_step", "mlp_width", "mlp_depth", "mlp_dropout"})
    choices: ClassVar[Choices] = {"adrmx_remix": ("reference", "fixed")}
    min_envs = 2
    why_not_cacheable = "it has two featurizers, whose frozen parts may differ"

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        m, k, n = sizes.n_features, sizes.n_classes, sizes.n_envs
        mlp = (hparams["mlp_width"], hparams["mlp_depth"], hparams["mlp_dropout"])
        return {
            "domain_featurizer": FeaturizerSpec(),
            "discriminator": MLPSpec(m, n, *mlp),
            "classifier": TaperedSpec(m, k),
            "second_classifier": TaperedSpec(m, k),
            "domain_classifier": TaperedSpec(m, n),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        heads = ("classifier", "second_classifier", "domain_classifier")
        return {
            "generator": ParamGroup(
                ("featurizer", "domain_featurizer", *heads), beta1="beta1", beta2=0.9
            ),
            "discriminator": ParamGroup(("discriminator",), beta1="beta1", beta2=0.9),
        }

    def updates(self, step: int) -> Sequence[Update]:
        k = self.values["d_steps_per_g_step"]
        if (step + 1) % (1 + k) < k:
            return (Update(self.discriminate, ("discriminator",)),)
        return (Update(self.objective, ("generator",)),)

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        return {
            "remix": Uniform((2, self.sizes.n_classes), "which two rows of each class are mixed")
        }

    def objective(self, s: Step) -> Outcome:
        nets = s.networks
        z_1 = s.features()
        z_2 = nets.domain_featurizer(s.x)
        z = z_1 - z_2
        parts = {
            "discriminator_loss": F.cross_entropy(nets.discriminator(z), s.env),
            "label_loss": s.risk(nets.classifier(z_1)),
            "second_label_loss": s.risk(nets.second_classifier(z)),
            "domain_loss": F.cross_entropy(nets.domain_classifier(z_2), s.env),
            "remix_loss": self._remix(s, z, z_2),
            "contrast": supervised_contrast(z_1, s.y, s.env) + supervised_contrast(z, s.y, s.env),
        }
        loss = (
            parts["label_loss"]
            + parts["second_label_loss"]
            + s.hp.dclf_lambda * parts["domain_loss"]
            + s.hp.rmxd_lambda * parts["remix_loss"]
            + s.hp.cnt_lambda * parts["contrast"]
            - s.hp.disc_lambda * parts["discriminator_loss"]
        )
        return Outcome(loss, detached(parts))

    def discriminate(self, s: Step) -> Outcome:
        """Compute L_D; the features are constants."""
        z = s.features() - s.networks.domain_featurizer(s.x)
        loss = F.cross_entropy(s.networks.discriminator(z.detach()), s.env)
        return Outcome(loss, {"discriminator_loss": loss.detach()})

    def _remix(self, s: Step, z: Tensor, z_2: Tensor) -> Tensor:
        """Compute R, the mean cross entropy over classes of two mixed rows of each."""
        classes = torch.arange(self.sizes.n_classes, device=z.device)
        counts = (s.y == classes[:, None]).sum(1)
        safe_counts = counts.clamp(min=2)
        first, second = s.random["remix"]
        a = (first * safe_counts).long().clamp(max=safe_counts - 1)
        shift = (second * (safe_counts - 1)).long().clamp(max=safe_counts - 2)
        b = (a + 1 + shift) % safe_counts
        if self.values["adrmx_remix"] == "fixed":
            last = len(z) - 1
            row = torch.arange(len(z), device=z.device)
            by_class = (s.y * len(z) + row).argsort()
            start = counts.cumsum(0) - counts
            a = by_class[(start + a).clamp(max=last)]
            b = by_class[(start + b).clamp(max=last)]
        losses = F.cross_entropy(s.networks.classifier(z[a] + z_2[b]), s.y[a], reduction="none")
        return torch.where(counts >= 2, losses, 0.0).sum() / len(classes)


def supervised_contrast(z: Tensor, y: Tensor, env: Tensor, within: float = 0.5) -> Tensor:
    """Compute the supervised contrastive loss of Khosla et al. (2020), in the form of ADRMX.

    With u = z / |z|,

        e_ij = w_ij exp(u_i . u_j / 0.07)
        p_ij = e_ij / (sum_{k != i} e_ik + 1e-5),

    a row's loss is the mean of -log(p_ij + 1e-5) over the other rows j of its class. Rows without
    any count as 0, and the sum is divided by the number of the rest plus 1.

    Args:
        z: (N, m) features.
        y: (N,) labels.
        env: (N,) environments.
        within: w_ij of rows of one environment; 1 - ``within`` of rows of two.
    """
    u = F.normalize(z, dim=1)
    row = torch.arange(len(y), device=z.device)
    off_diagonal = row[:, None] != row
    weight = torch.where(env[:, None] == env, within, 1 - within) * off_diagonal
    e = weight * (u @ u.T / TEMPERATURE).exp()
    log_share = (e / (e.sum(1, keepdim=True) + EPSILON) + EPSILON).log()
    positive = (off_diagonal & (y[:, None] == y)).to(z.dtype)
    count = positive.sum(1)
    losses = -(positive * log_share).sum(1) / count.clamp(min=1)
    return losses.sum() / ((count > 0).sum() + 1)

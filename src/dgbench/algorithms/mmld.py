"""Domain generalization using a mixture of multiple latent domains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import Networks
from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.clustering import kmeans, principal_components, relabeled
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup, Update
from dgbench.objectives.gradients import scale_gradient
from dgbench.objectives.step import (
    Bernoulli,
    Outcome,
    Prediction,
    RandomInputs,
    Step,
    Surveyed,
    dropped,
    epoch_of,
)

COMPONENTS = 256
TOLERANCE = 1e-4  # of k-means
EPSILON = 1e-5


class MMLD(Algorithm):
    """Make features that do not tell groups of like style apart
    (Matsuura and Harada, 2020; the authors' code).

    ``rounds`` times, evenly over training, all training images are clustered into ``n_groups`` by
    their style: channel means and standard deviations of the first two stages' maps (of the image,
    where a backbone has no such maps), 256 principal components, k-means. Clusters take the names
    of the round before that fit best. The objective is

        L = CE(h(z), Y) + sum_i w_i CE(D(u_i), g_i) / sum_i w_i + b H

    where u is z with its gradient times -a, and w one over a group's size. H is the mean entropy of
    predictions (``entropy=square``: -1/2 mean sum_k p_k^2). In round r of R

        a = (2 / (1 + exp(-10 r/R)) - 1) grl_weight

    and b is the same with ``entropy_weight``, both 0 in the first round; the discriminator D itself
    learns with weight 1 always. No environment labels are used.

    The authors' passes take validation images too; here training images only. ``optimizer=sgd``
    (Nesterov, 0.9) and ``drop_lr_at`` 0.8 are their settings.
    """

    static = frozenset(
        {"n_groups", "rounds", "disc_width", "disc_drop_rate", "head_factor", "drop_lr_at"}
    )
    choices: ClassVar[Choices] = {
        "entropy": ("shannon", "square"),
        "group_weights": (True, False),
        "optimizer": ("adam", "sgd"),
    }
    why_not_cacheable = "it looks at the maps of the first stages"
    why_not_vectors = "it clusters pictures by the style of their channels"
    why_not_sharp = "featurizer and discriminator follow different losses in one update"
    heads: ClassVar[tuple[str, ...]] = ("classifier", "disc_1", "disc_2", "disc_3")

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        width = hparams["disc_width"]
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes, xavier_gain=0.1),
            "disc_1": LinearSpec(sizes.n_features, width),
            "disc_2": LinearSpec(width, width),
            "disc_3": LinearSpec(width, hparams["n_groups"]),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        kind = self.values["optimizer"]
        return {
            "body": ParamGroup(("featurizer",), optimizer=kind, nesterov=True),
            "heads": ParamGroup(self.heads, optimizer=kind, nesterov=True),
        }

    def updates(self, step: int) -> tuple[Update, ...]:
        return (Update(self.objective, ("body", "heads")),)

    def lr_factor(self, group: str, step: int) -> float:
        factor: float = self.values["head_factor"] if group == "heads" else 1.0
        return factor * dropped(step, self.values["drop_lr_at"], self.sizes.n_steps)

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        return {
            "group": torch.zeros(self.sizes.n_images, dtype=torch.int64),
            "group_weight": torch.ones(self.values["n_groups"]),
        }

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        shape = (sum(sizes), self.values["disc_width"])
        keep_rate = 1 - self.values["disc_drop_rate"]
        keep = Bernoulli(shape, "which units of the discriminator are kept", p=keep_rate)
        return {"keep_1": keep, "keep_2": keep}

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        logits = s.networks.classifier(z)
        rise = self._rise(s)
        reversal = rise * s.hp.grl_weight
        group = s.state["group"][s.index]
        group_logits = self._discriminate(s, scale_gradient(z, -reversal))
        weight = s.state["group_weight"][group]
        losses = F.cross_entropy(group_logits, group, reduction="none")
        style_loss = (weight * losses).sum() / weight.sum()
        entropy = self._entropy(logits)
        risk = s.risk(logits)
        logs = {
            "class_loss": risk.detach(),
            "discriminator_loss": style_loss.detach(),
            "entropy": entropy.detach(),
            "reversal": reversal,
        }
        return Outcome(risk + style_loss + rise * s.hp.entropy_weight * entropy, logs)

    def _rise(self, s: Step) -> Tensor:
        """Compute the factor of the weights a and b in this round, from 0 in the first up to 1."""
        rounds = self.values["rounds"]
        current = epoch_of(s.step, rounds, self.sizes.n_steps).to(s.hp.grl_weight.dtype)
        rise: Tensor = 2 / (1 + (-10 * current / rounds).exp()) - 1
        return rise

    def _discriminate(self, s: Step, u: Tensor) -> Tensor:
        scale = 1 / (1 - self.values["disc_drop_rate"])
        u = s.networks.disc_1(u).relu() * s.random["keep_1"] * scale
        u = s.networks.disc_2(u).relu() * s.random["keep_2"] * scale
        return s.networks.disc_3(u)

    def _entropy(self, logits: Tensor) -> Tensor:
        p = logits.softmax(1)
        if self.values["entropy"] == "square":
            return -p.square().sum(1).mean() / 2
        return -(p * logits.log_softmax(1)).sum(1).mean()

    def survey_due(self, step: int) -> bool:
        rounds = self.values["rounds"]
        n_steps = max(self.sizes.n_steps, 1)
        current = epoch_of(step, rounds, n_steps)
        return bool(current < rounds and step == math.ceil(current * n_steps / rounds))

    def survey(self, s: Prediction) -> Tensor:
        """Compute the style of each of (n, C, H, W) images."""
        _, maps = s.networks.featurizer(s.x, maps=True)
        early = [maps[1], maps[2]]
        if any(activation.dim() == 2 for activation in early):  # a perceptron's
            early = [s.x]
        return torch.cat([_style(activation) for activation in early], 1)

    def digest(self, survey: Surveyed) -> dict[str, Tensor]:
        n_groups = self.values["n_groups"]
        rows = principal_components(survey.rows, COMPONENTS)
        clusters = kmeans(rows, n_groups, survey.rng, tolerance=TOLERANCE)
        labels = relabeled(clusters.labels, survey.state["group"][survey.index], n_groups)
        group = torch.zeros_like(survey.state["group"]).index_copy(0, survey.index, labels)
        if not self.values["group_weights"]:
            return {"group": group}
        share = 1 / torch.bincount(labels, minlength=n_groups).clamp(min=1).double()
        weight = n_groups * share / share.sum()
        return {"group": group, "group_weight": weight.to(survey.state["group_weight"])}


def _style(maps: Tensor) -> Tensor:
    """Compute the (n, 2 C) means and standard deviations of the channels of n images.

    Args:
        maps: (n, C, H, W) maps, or (n, L, C) tokens.
    """
    pixels = maps.mT if maps.dim() == 3 else maps.flatten(2)
    variance = pixels.var(2, correction=min(1, pixels.shape[2] - 1))
    return torch.cat([pixels.mean(2), (variance + EPSILON).sqrt()], 1)

"""Disentanglement-constrained domain generalization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import Networks
from dgbench.errors import ConfigError
from dgbench.network_specs import (
    FeaturizerSpec,
    ImageDiscriminatorSpec,
    LinearSpec,
    NetworkSpec,
    Sizes,
    TranslatorSpec,
)
from dgbench.objectives import translation as ops
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup, Update
from dgbench.objectives.gradients import copied, detached, saved, set_statistics, with_saved
from dgbench.objectives.pairing import half_size, halves
from dgbench.objectives.step import Outcome, RandomInputs, Step, Uniform


class DDG(Algorithm):
    """Ask that images rebuilt with another image's semantics stay what they are
    (Zhang et al., 2022; the authors' code).

    The first half of each minibatch is a, the second b; x+ has the class of x. T(v, f) decodes the
    variation v = E(gray x) of one image with the semantics f of another, which gives x_ba = T(v_b,
    f_a) and x_ab.

    Before step T0 = ``translator_steps``, a discriminator of x_ba and x_ab, the distance |T(v_a,
    f_a) - x_a| and a cycle train T and E; f comes from the initial featurizer, and the classifier
    is untrained. From T0 on, with R_a = |T(v_a, f(x+_a)) - x_a|,

        L = sum of CE over a, b, a+, b+
            + recon_id_w * (CE of x_ba and x_ab)
            + mu * sum over halves of mean max(R - margin, 0)

    where x_ba and x_ab come from T, E of step T0 and the initial featurizer. Before the loss

        mu <- clip(mu + eta * (mean R_a - margin), 0, 1).

    For large images f has four parts: ``parts=pooled``, each a quarter of the channels, repeated
    (it pools twice); ``map``, maxima over four bands of the last map. ``swap_label``: x_ba is taken
    for the class of a (``semantic``) or, if large, of b, whose variation alone it has (``code``).
    Positives come from the minibatch, not from everywhere.
    """

    static = frozenset({"translator_steps"})
    choices: ClassVar[Choices] = {"parts": ("pooled", "map"), "swap_label": ("code", "semantic")}
    reset_adam_at = "translator_steps"
    why_not_cacheable = why_not_vectors = (
        "its translator makes images, and those go through the whole featurizer"
    )

    def __init__(self, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        super().__init__(sizes, hparams)
        steps = hparams["translator_steps"]
        if steps < 1:
            steps = steps * sizes.n_steps
        self.first = int(steps)  #: step from which the classifier is trained
        self.values["translator_steps"] = self.first
        self.large = TranslatorSpec(sizes.image, sizes.n_features).kind == "large"

    @property
    def _parts(self) -> str:
        parts = str(self.values["parts"])
        return parts if self.large else "none"

    @classmethod
    def check(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        super().check(sizes, hparams)
        steps = hparams["translator_steps"]
        if steps >= 1 and (steps % 1 or steps >= sizes.n_steps):
            problem = (
                f"hparams.translator_steps={steps} leaves no steps of {sizes.n_steps} for the "
                "classifier"
            )
            raise ConfigError(f"{problem}; give a smaller whole number, or a share below 1")

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes),
            "translator": TranslatorSpec(sizes.image, sizes.n_features),
            "image_discriminator": ImageDiscriminatorSpec(sizes.image),
            "initial_featurizer": FeaturizerSpec(frozen=True),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {
            "model": ParamGroup(("featurizer", "classifier")),
            "generator": ParamGroup(("translator",), "lr_g", "weight_decay_g", 0.0),
            "discriminator": ParamGroup(("image_discriminator",), "lr_d"),
        }

    def lr_factor(self, group: str, step: int) -> float:
        if group == "model" or step >= self.first or 10 * step < 6 * self.first:
            return 1.0
        return 0.1 if 10 * step < 9 * self.first else 0.01

    def updates(self, step: int) -> Sequence[Update]:
        if step < self.first:
            return (
                Update(self.discriminate, ("discriminator",)),
                Update(self.translate, ("generator",)),
            )
        objective = Update(self.objective, ("model", "generator"))
        if step == self.first:
            return Update(self.keep, ()), objective
        return (objective,)

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        return {"mu": torch.zeros(()), **saved(networks, "translator")}

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        return {
            "positive": Uniform(
                (2, half_size(sizes)),
                "which other row of the class and environment, for a and for b",
            ),
            "coin": Uniform(
                (), "at most 1/2: the cycle trains the encoder; above: it trains through the images"
            ),
        }

    def discriminate(self, s: Step) -> Outcome:
        """Compute the loss of the discriminator of images; running statistics stay as they are."""
        a, b = halves(s.batch, s.random["positive"])
        nets = s.networks.bind(copied(s.networks.statistics()))
        x_ba, x_ab, _, _ = ops.swapped(nets, a.x, b.x, self._parts)
        loss = ops.total(
            ops.discrimination_loss(nets.image_discriminator, fake.detach(), real)
            for fake, real in ((x_ba, a.x), (x_ab, b.x))
        )
        return Outcome(s.hp.gan_w * loss, {"discriminator_loss": loss.detach()})

    def translate(self, s: Step) -> Outcome:
        """Compute the loss of the translator; its running statistics move."""
        nets = s.networks.bind(copied(s.networks.statistics()))
        a, b = halves(s.batch, s.random["positive"])
        x_ba, x_ab, vs, fs = ops.swapped(nets, a.x, b.x, self._parts)
        rebuilt = [nets.translator(v, f) for v, f in zip(vs, fs, strict=True)]
        if nets.mixes_rows("translator"):  # the authors' code moves its statistics by these too
            for v, x in zip(vs, (a.positive, b.positive), strict=True):
                nets.translator(ops.gray(x))
                nets.translator(v, ops.semantics(nets.initial_featurizer, x, self._parts)[1])
        learns = s.random["coin"] <= 0.5
        cycled_images, final_nets = ops.cycled(nets, x_ba, x_ab, self._parts, learns)
        set_statistics(s.networks, final_nets.statistics())
        logs = {
            "adversarial": ops.deception_loss(nets.image_discriminator, (x_ba, x_ab)),
            "reconstruction": ops.total(map(ops.distances, rebuilt, (a.x, b.x))),
            "cycle": ops.total(map(ops.distances, cycled_images, (a.x, b.x))),
            "cycle_weight": self._cycle_weight(s),
        }
        loss = s.hp.gan_w * logs["adversarial"] + s.hp.recon_x_w * logs["reconstruction"]
        return Outcome(loss + logs["cycle_weight"] * logs["cycle"], detached(logs))

    def _cycle_weight(self, s: Step) -> Tensor:
        begin = s.hp.warm_iter_r * self.first
        return ops.late_weight(
            s.step + 1, begin, s.hp.recon_x_cyc_w, s.hp.warm_scale, s.hp.max_cyc_w
        )

    def objective(self, s: Step) -> Outcome:
        """Compute the loss of the classifier, and of the translator that constrains it."""
        nets = s.networks
        a, b = halves(s.batch, s.random["positive"])
        old_nets = with_saved(nets, "translator", s.state)
        x_ba, x_ab, _, _ = ops.swapped(old_nets, a.x, b.x, self._parts, evaluate=True)
        of_a, of_b = x_ba, x_ab  # what is taken for the class of a, and of b
        if self.values["swap_label"] == "code" and self.large:
            of_a, of_b = x_ab, x_ba
        risks = []
        distances = []
        for half in (a, b):
            z, f = ops.semantics(nets.featurizer, half.positive, self._parts)
            risks.append(F.cross_entropy(nets.logits(half.x), half.y))
            risks.append(F.cross_entropy(nets.classifier(z), half.y))
            rebuilt = nets.translator(nets.translator(ops.gray(half.x)), f)
            distances.append(ops.distances(rebuilt, half.x))
        swapped = [
            F.cross_entropy(nets.logits(image.detach()), y)
            for image, y in ((of_a, a.y), (of_b, b.y))
        ]
        mu = torch.where(s.step == self.first, s.hp.recon_xp_w, s.state["mu"])
        excess = distances[0].detach().mean() - s.hp.margin
        logs = {
            "risk": ops.total(risks),
            "swapped_risk": ops.total(swapped),
            "penalty": ops.total((distance - s.hp.margin).relu() for distance in distances),
            "penalty_weight": (mu + s.hp.eta * excess).clamp(0, 1),
        }
        loss = (
            logs["risk"]
            + logs["penalty_weight"] * logs["penalty"]
            + s.hp.recon_id_w * logs["swapped_risk"]
        )
        return Outcome(loss, detached(logs), {"mu": detached(logs)["penalty_weight"]})

    def keep(self, s: Step) -> Outcome:
        """Copy the translator of this step into the state, for the images of all further steps."""
        return Outcome(s.x.new_zeros(()), state=saved(s.networks, "translator"))

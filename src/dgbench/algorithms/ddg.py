"""Disentanglement-constrained domain generalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.errors import ConfigError
from dgbench.modules import AnyNetworks, Networks
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup, Update
from dgbench.objectives.gradients import detached
from dgbench.objectives.pairing import partners
from dgbench.objectives.random_inputs import RandomInputs, Uniform
from dgbench.objectives.step import Outcome, Step
from dgbench.objectives.translation import deception_loss, discrimination_loss, distances, gray
from dgbench.requests import (
    FeaturizerSpec, ImageDiscriminatorSpec, LinearSpec, NetworkSpec, Sizes, TranslatorSpec, translator_kind,
)  # fmt: skip

PARTS = 4  # of the features, for the translator of large images


@dataclass(frozen=True)
class Half:
    """Half a minibatch: images, labels, and for every image another of its class and environment."""

    x: Tensor
    y: Tensor
    positive: Tensor


class DDG(Algorithm):
    """Images rebuilt with another image's semantics stay what they are (Zhang et al., 2022; the authors' code).

    The first half of each minibatch is a, the second b. T(v, f) decodes the variation v = E(gray x) of one image with
    the semantics f of another. Before step T0 = ``translator_steps``, x_ba = T(v_b, f_a) and x_ab train a discriminator
    of images, and it, |T(v_a, f_a) - x_a| and a cycle (weight rising to ``max_cyc_w``) train T and E; the features are
    those of the initial featurizer in evaluation mode. From T0 on, x+ being a positive:
    L = sum of CE over a, b, a+, b+ + recon_id_w * (CE of x_ba and x_ab) + mu * sum over halves of mean max(R - margin,
    0), R = |T(v_a, f(x+_a)) - x_a|; mu <- clip(mu + eta * (mean R_a - margin), 0, 1) before the loss, from
    ``recon_xp_w``. x_ba and x_ab then come from T and E of step T0 and the initial featurizer.

    The translator fits the image size, see :mod:`dgbench.networks.translators`. For large images f has four parts:
    ``parts=pooled``, each a quarter of the channels, repeated (the code pools what is pooled already); ``map``, maxima
    over four bands of the last map. ``swap_label``: what x_ba is taken for. ``semantic``: the class of a. ``code``: for
    large images that of b, whose variation alone it has (the authors' code).

    Before T0 the classifier is untrained. Positives come from the minibatch; the authors draw one for each image once,
    from validation images too. Their featurizers have no unfrozen BatchNorm.
    """

    static = frozenset({"translator_steps", "parts", "swap_label"})
    choices: ClassVar[Choices] = {"parts": ("pooled", "map"), "swap_label": ("code", "semantic")}
    order_matters = True  # random numbers belong to rows, and halves to places
    reset_adam_at = "translator_steps"
    why_not_cacheable = "its translator reads whole images, and the images that it makes go through the whole featurizer"

    def __init__(self, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        super().__init__(sizes, hparams)
        given = hparams["translator_steps"]
        self.first = self.values["translator_steps"] = int(given * sizes.n_steps if given < 1 else given)
        self.large = translator_kind(sizes.image) == "large"

    @classmethod
    def check(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        super().check(sizes, hparams)
        steps = hparams["translator_steps"]
        if steps >= 1 and (steps % 1 or steps >= sizes.n_steps):
            raise ConfigError(
                f"hparams.translator_steps={steps} leaves nothing of {sizes.n_steps} steps for the classifier; give a "
                "smaller whole number, or a share below 1"
            )

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        m = sizes.n_features * (PARTS if translator_kind(sizes.image) == "large" else 1)
        return {
            "classifier": LinearSpec(sizes.n_features, sizes.n_classes),
            "translator": TranslatorSpec(sizes.image, m),
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
            return Update(self.discriminate, ("discriminator",)), Update(self.translate, ("generator",))
        keep = (Update(self.keep, ()),) if step == self.first else ()
        return *keep, Update(self.objective, ("model", "generator"))

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        return {"mu": torch.zeros(()), **_kept(networks)}

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        n = sum(max(1, size // 2) for size in sizes)
        return {
            "positive": Uniform((2, n), "which other row of the class and environment, for a and for b"),
            "coin": Uniform((), "at most 1/2: the cycle trains the encoder; above: it trains through the images"),
        }

    def halves(self, s: Step) -> tuple[Half, Half]:
        """a and b; an environment's only row is in both."""
        n = [max(1, size // 2) for size in s.sizes]
        firsts, seconds = [0] * len(n), [min(k, size - k) for k, size in zip(n, s.sizes, strict=True)]
        return self._half(s, firsts, n, s.random["positive"][0]), self._half(s, seconds, n, s.random["positive"][1])

    @staticmethod
    def _half(s: Step, starts: Sequence[int], lengths: Sequence[int], u: Tensor) -> Half:
        def rows(values: Tensor) -> Tensor:
            parts = zip(s.split(values), starts, lengths, strict=True)
            return torch.cat([part[start : start + length] for part, start, length in parts])

        x, y, env = rows(s.x), rows(s.y), rows(s.env)
        same = (y[:, None] == y) & (env[:, None] == env)
        return Half(x, y, x[partners(same, u)])

    def _features(self, featurizer: Callable[..., Any], x: Tensor) -> tuple[Tensor, Tensor]:
        """(n, C, H, W) -> (n, m) features, and what the translator takes for the semantics."""
        if not self.large:
            z = featurizer(x)
            return z, z
        if self.values["parts"] == "pooled":
            z = featurizer(x)
            return z, z.repeat_interleave(PARTS, 1)
        z, maps = featurizer(x, maps=True)
        return z, F.adaptive_max_pool2d(maps[-1], (PARTS, 1)).flatten(1)

    def _swapped(self, nets: AnyNetworks, a: Half, b: Half, evaluate: bool = False) -> tuple[Tensor, Tensor]:
        """x_ba and x_ab, with the semantics of the initial featurizer."""
        v_a, v_b = (nets.translator(gray(half.x), evaluate=evaluate) for half in (a, b))
        f_a, f_b = (self._features(nets.initial_featurizer, half.x)[1] for half in (a, b))
        return nets.translator(v_b, f_a, evaluate=evaluate), nets.translator(v_a, f_b, evaluate=evaluate)

    def discriminate(self, s: Step) -> Outcome:
        """The loss of the discriminator of images; running statistics stay where they are."""
        a, b = self.halves(s)
        nets = s.networks.bind({key: value.clone() for key, value in s.networks.statistics().items()})
        x_ba, x_ab = self._swapped(nets, a, b)
        tell = s.networks.image_discriminator
        loss = discrimination_loss(tell, x_ba.detach(), a.x) + discrimination_loss(tell, x_ab.detach(), b.x)
        return Outcome(s.hp.gan_w * loss, {"discriminator_loss": loss.detach()})

    def translate(self, s: Step) -> Outcome:
        """The loss of the translator."""
        nets, (a, b) = s.networks, self.halves(s)
        v_a, v_b = (nets.translator(gray(half.x)) for half in (a, b))
        f_a, f_b = (self._features(nets.initial_featurizer, half.x)[1] for half in (a, b))
        x_ba, x_ab = nets.translator(v_b, f_a), nets.translator(v_a, f_b)
        r_a, r_b = nets.translator(v_a, f_a), nets.translator(v_b, f_b)
        if nets.mixes_rows("translator"):  # the authors' code moves its statistics by these too
            for half, v in ((a, v_a), (b, v_b)):
                f = self._features(nets.initial_featurizer, half.positive)[1]
                nets.translator(gray(half.positive)), nets.translator(v, f)
        adversarial = deception_loss(nets.image_discriminator, x_ba) + deception_loss(nets.image_discriminator, x_ab)
        rebuilt = distances(r_a, a.x).mean() + distances(r_b, b.x).mean()
        cycle = self._cycle(s, a, x_ba, x_ab) + self._cycle(s, b, x_ab, x_ba)
        weight = self._cycle_weight(s)
        loss = s.hp.gan_w * adversarial + s.hp.recon_x_w * rebuilt + weight * cycle
        logs = {"adversarial": adversarial, "reconstruction": rebuilt, "cycle": cycle, "cycle_weight": weight}
        return Outcome(loss, detached(logs))

    def _cycle(self, s: Step, half: Half, semantics: Tensor, variation: Tensor) -> Tensor:
        """How far half's images are from those made of their own semantics and variation in two made images."""
        nets = s.networks
        f = self._features(nets.initial_featurizer, semantics)[1].detach()
        learns = s.random["coin"] <= 0.5
        moved = {key: value.clone() for key, value in nets.statistics().items()}
        live = nets.bind(moved).translator(gray(variation.detach()))
        for key, value in nets.statistics().items():
            value.copy_(torch.where(learns, moved[key], value))
        constant = nets.bind(detached(nets.params("translator"))).translator(gray(variation), evaluate=True)
        return distances(nets.translator(torch.where(learns, live, constant), f), half.x).mean()

    def _cycle_weight(self, s: Step) -> Tensor:
        """0 at first, then rising; it counts from the step after the first at which it is not 0."""
        begin = s.hp.warm_iter_r * self.first

        def weight(update: Tensor) -> Tensor:
            risen = s.hp.recon_x_cyc_w + s.hp.warm_scale * (update - begin.floor())
            return torch.where(update > begin, torch.minimum(risen, s.hp.max_cyc_w), s.hp.recon_x_cyc_w)

        return torch.where(weight(s.step) == 0, 0.0, weight(s.step + 1))

    def objective(self, s: Step) -> Outcome:
        """The loss of the classifier, and of the translator that it constrains."""
        nets, (a, b) = s.networks, self.halves(s)
        copy = nets.bind({f"translator.{key}": s.state[name] for key, name in _names(nets)})
        x_ba, x_ab = (x.detach() for x in self._swapped(copy, a, b, evaluate=True))
        risks, apart = [], []
        for half in (a, b):
            z, (again, f) = self._features(nets.featurizer, half.x)[0], self._features(nets.featurizer, half.positive)
            risks += [F.cross_entropy(nets.classifier(each), half.y) for each in (z, again)]
            apart.append(distances(nets.translator(nets.translator(gray(half.x)), f), half.x))
        before = torch.where(s.step == self.first, s.hp.recon_xp_w, s.state["mu"])
        mu = (before + s.hp.eta * (apart[0].detach().mean() - s.hp.margin)).clamp(0, 1)
        hinge = torch.stack([(each - s.hp.margin).relu().mean() for each in apart]).sum()
        made = (x_ab, x_ba) if self.large and self.values["swap_label"] == "code" else (x_ba, x_ab)
        pairs = zip(made, (a.y, b.y), strict=True)
        swapped = torch.stack([F.cross_entropy(nets.logits(x), y) for x, y in pairs]).sum()
        risk = torch.stack(risks).sum()
        logs = {"risk": risk, "swapped_risk": swapped, "penalty": hinge, "penalty_weight": mu}
        return Outcome(risk + mu * hinge + s.hp.recon_id_w * swapped, detached(logs), {"mu": mu})

    def keep(self, s: Step) -> Outcome:
        """The translator as it is now, for the images of all further steps."""
        return Outcome(s.x.new_zeros(()), state=_kept(s.networks))


def _names(nets: AnyNetworks) -> list[tuple[str, str]]:
    ...


def _kept(nets: AnyNetworks) -> dict[str, Tensor]:
    ...

"""Uniform risk minimization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import AnyNetworks
from dgbench.network_specs import LeakyMLPSpec, LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup, Update
from dgbench.objectives.gradients import detached
from dgbench.objectives.step import Outcome, Prediction, RandomInputs, Step, Uniform

WIDTH = 100  # of the discriminator
ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}
LEAST_NOISE = {"tanh": -1.0, "relu": 0.0, "sigmoid": 0.0}  # the largest noise is 1


class URM(Algorithm):
    """Spread the features evenly over their range, by an adversary
    (Krishnamachari et al., 2024; DomainBed).

    The features are z = act(Phi(x)), in training and in prediction, with act =
    ``urm_generator_output``. A discriminator Q tells z from v, uniform on [-1, 1) for tanh and on
    [0, 1) for relu and sigmoid. In one step, from one forward pass and one Q,

        the model follows  CE(h(z), Y) + w mean softplus(-Q(z))
        Q follows          BCE(Q(v), 1) + w BCE(Q(z), 0)

    where w = ``urm_adv_lambda`` weighs both. Environments are not looked at.

    ``urm_discriminator_label_smoothing`` s: the targets are 1 - s + s u and s u, u ~ U(0, 1) per
    row (never drawn). ``urm_discriminator_optimizer``: Adam, or SGD with momentum 0.9 (never
    drawn).

    DomainBed's output ``identity`` fails there, since it has no range, and does not exist here.
    """

    static = frozenset({"urm_discriminator_hidden_layers", "urm_discriminator_label_smoothing"})
    choices: ClassVar[Choices] = {
        "urm_generator_output": ("tanh", "relu", "sigmoid"),
        "urm_discriminator_optimizer": ("adam", "sgd"),
    }
    why_not_sharp = "model and discriminator follow different losses in one update"

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        m = sizes.n_features
        return {
            "classifier": LinearSpec(m, sizes.n_classes),
            "discriminator": LeakyMLPSpec(m, 1, WIDTH, hparams["urm_discriminator_hidden_layers"]),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {
            "model": ParamGroup(("featurizer", "classifier")),
            "discriminator": ParamGroup(
                ("discriminator",),
                "urm_discriminator_lr",
                optimizer=self.values["urm_discriminator_optimizer"],
            ),
        }

    def updates(self, step: int) -> Sequence[Update]:
        return (Update(self.objective, ("model", "discriminator")),)

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        n = sum(sizes)
        noise = {"noise": Uniform((n, self.sizes.n_features), "v, before it is moved to its range")}
        if not self.values["urm_discriminator_label_smoothing"]:
            return noise
        return {
            **noise,
            "labels": Uniform((2, n), "how much of the smoothing the labels of v and of z get"),
        }

    def objective(self, s: Step) -> Outcome:
        z = self._features(s.networks, s.x)
        least = LEAST_NOISE[self.values["urm_generator_output"]]
        noise = least + (1 - least) * s.random["noise"]
        w = s.hp.urm_adv_lambda
        risk = s.risk(s.networks.classifier(z))
        constant = s.networks.bind(detached(s.networks.params("discriminator")))
        deception = F.softplus(-constant.discriminator(z)).mean()
        one, zero = self._targets(s)
        noise_loss = _cross_entropy(s.networks.discriminator(noise), one)
        feature_loss = _cross_entropy(s.networks.discriminator(z.detach()), zero)
        discrimination = noise_loss + w * feature_loss
        logs = {
            "risk": risk.detach(),
            "generator_loss": deception.detach(),
            "discriminator_loss": discrimination.detach(),
        }
        return Outcome(risk + w * deception + discrimination, logs)

    def predict(self, s: Prediction) -> Tensor:
        return s.networks.classifier(self._features(s.networks, s.x))

    def _features(self, networks: AnyNetworks, x: Tensor) -> Tensor:
        """Compute z, the (n, m) features after the activation."""
        activation = ACTIVATIONS[self.values["urm_generator_output"]]
        return activation(networks.featurizer(x))

    def _targets(self, s: Step) -> tuple[Tensor, Tensor]:
        """Return the discriminator's targets for the noise and for the features, (N, 1) each."""
        smoothing = self.values["urm_discriminator_label_smoothing"]
        if not smoothing:
            ones = s.x.new_ones(len(s.y), 1)
            return ones, torch.zeros_like(ones)
        noise_share, feature_share = s.random["labels"][:, :, None].unbind()
        return 1 - smoothing + smoothing * noise_share, smoothing * feature_share


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Compute the mean of target softplus(-logits) + (1 - target) softplus(logits)."""
    return (F.softplus(logits) - target * logits).mean()

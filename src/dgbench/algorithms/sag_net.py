"""Style-agnostic networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, ParamGroup, Update
from dgbench.objectives.step import Outcome, Permutation, RandomInputs, Step, Uniform

EPSILON = 1e-5


class SagNet(Algorithm):
    """Rely on content, not on style: the feature statistics of each image
    (Nam et al., 2021; DomainBed).

    A step has three updates, each with its own forward pass, mixing weights and permutation:

    1. the featurizer and the content head on features whose mean and variance are mixed with
       another row's;
    2. the style head on features whose normalized content is another row's;
    3. the featurizer with sag_w_adv times the cross entropy of the style head with the uniform
       distribution.

    Mean and unbiased variance are taken over the feature axis; variances are mixed, not standard
    deviations.
    """

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        head = LinearSpec(sizes.n_features, sizes.n_classes)
        return {"classifier": head, "style": head}

    def param_groups(self) -> dict[str, ParamGroup]:
        return {name: ParamGroup((name,)) for name in ("featurizer", "classifier", "style")}

    def updates(self, step: int) -> Sequence[Update]:
        return (
            Update(self.objective, ("featurizer", "classifier")),
            Update(self.learn_style, ("style",)),
            Update(self.forget_style, ("featurizer",)),
        )

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        n = sum(sizes)
        return {
            "mix": Uniform((n,), "weight of a row's own style"),
            "permutation": Permutation((3, n), "the other row, in each of the three updates"),
        }

    def objective(self, s: Step) -> Outcome:
        """Compute the content head's loss on randomized style."""
        content, mean, variance = _take_apart(s.features())
        partner = s.random["permutation"][0]
        mix = s.random["mix"][:, None]
        mean = mix * mean + (1 - mix) * mean[partner]
        variance = mix * variance + (1 - mix) * variance[partner]
        return Outcome(s.risk(s.networks.classifier(_put_together(content, mean, variance))))

    def learn_style(self, s: Step) -> Outcome:
        """Compute the style head's loss on randomized content; the features are constants."""
        z = s.features().detach()
        loss = s.risk(self._style_logits(s, z, s.random["permutation"][1]))
        return Outcome(loss, {"style_loss": loss.detach()})

    def forget_style(self, s: Step) -> Outcome:
        """Compute the featurizer's loss for style that the style head can read."""
        logits = self._style_logits(s, s.features(), s.random["permutation"][2])
        loss = -s.hp.sag_w_adv * logits.log_softmax(1).mean()
        return Outcome(loss, {"adversarial_loss": loss.detach()})

    @staticmethod
    def _style_logits(s: Step, z: Tensor, partner: Tensor) -> Tensor:
        content, mean, variance = _take_apart(z)
        return s.networks.style(_put_together(content[partner].detach(), mean, variance))


def _take_apart(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the (N, m) content of (N, m) features, and their (N, 1) means and variances."""
    mean = z.mean(1, keepdim=True)
    centered = z - mean
    variance = centered.square().sum(1, keepdim=True) / (z.shape[1] - 1)
    return centered * (variance + EPSILON).rsqrt(), mean, variance


def _put_together(content: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return content * (variance + EPSILON).sqrt() + mean

"""Style-agnostic networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from dgbench.algorithms.base import Algorithm
from dgbench.algorithms.pairing import draw_permutations
from dgbench.types import EnvBatch, LinearSpec, Networks, NetworkSpec, Outcome, Phase, Player, Sizes, Tensors

EPSILON = 1e-5


class SagNet(Algorithm):
    """Rely on content, not on style: the feature statistics of each image (Nam et al., 2021; DomainBed).

    A step has three updates, each with its own forward pass, mixing weights and permutation: the featurizer and the
    content head on features whose mean and variance are mixed with another row's; the style head on features whose
    normalized content is another row's; the featurizer with sag_w_adv times the cross entropy of the style head with
    the uniform distribution. Mean and unbiased variance are taken over the feature axis; variances are mixed, not
    standard deviations.
    """

    order_matters = True  # permutations over rows

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        head = LinearSpec(sizes.n_features, sizes.n_classes)
        return {"classifier": head, "style": head}

    def players(self) -> dict[str, Player]:
        return {name: Player((name,)) for name in ("featurizer", "classifier", "style")}

    def phases(self, step: int) -> Sequence[Phase]:
        return (
            Phase(self.objective, ("featurizer", "classifier")),
            Phase(self.learn_style, ("style",)),
            Phase(self.forget_style, ("featurizer",)),
        )

    def draw_noise(
        self, rng: np.random.Generator, steps: int, sizes: tuple[int, ...], hparams: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        n = sum(sizes)
        return {"mix": rng.random((steps, n)), "permutation": draw_permutations(rng, (steps, 3, n))}

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        """The content head's loss on randomized style."""
        content, mean, variance = _take_apart(nets.featurizer(batch.x))
        other, mix = noise["permutation"][0], noise["mix"][:, None]
        mean = mix * mean + (1 - mix) * mean[other]
        variance = mix * variance + (1 - mix) * variance[other]
        return Outcome(F.cross_entropy(nets.classifier(_put_together(content, mean, variance)), batch.y))

    def learn_style(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        """The style head's loss on randomized content; the features are constants."""
        z = nets.featurizer(batch.x).detach()
        return Outcome(F.cross_entropy(self._style_logits(nets, z, noise["permutation"][1]), batch.y))

    def forget_style(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        """What the featurizer pays for style that the style head can read."""
        logits = self._style_logits(nets, nets.featurizer(batch.x), noise["permutation"][2])
        return Outcome(-hp["sag_w_adv"] * logits.log_softmax(1).mean())

    @staticmethod
    def _style_logits(nets: Networks, z: Tensor, other: Tensor) -> Tensor:
        content, mean, variance = _take_apart(z)
        return nets.style(_put_together(content[other].detach(), mean, variance))


def _take_apart(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean = z.mean(1, keepdim=True)
    centered = z - mean
    variance = centered.square().sum(1, keepdim=True) / (z.shape[1] - 1)
    return centered * (variance + EPSILON).rsqrt(), mean, variance


def _put_together(content: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return content * (variance + EPSILON).sqrt() + mean

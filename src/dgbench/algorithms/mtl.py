"""Marginal transfer learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dgbench.algorithms.base import Algorithm
from dgbench.algorithms.contract import Choices
from dgbench.algorithms.risks import environment_risks, separate_features
from dgbench.types import EnvBatch, LinearSpec, Networks, NetworkSpec, Outcome, Sizes, Tensors


class MTL(Algorithm):
    """Show the classifier a summary of the environment too (Blanchard et al., 2021; DomainBed).

    a_e = mtl_ema * mean z_e + (1 - mtl_ema) * (its last value); o = h([z, a_e]); L = sum_e CE(o_e, y_e).

    ``variant=reference``: DomainBed overwrites a_e with standard normal noise, in training and in prediction, so the
    moving average has no effect. ``variant=fixed``: a_e itself, with a gradient through the mean; a prediction uses
    the mean of the images that are scored together.
    """

    static = frozenset({"variant"})
    choices: ClassVar[Choices] = {"variant": ("reference", "fixed")}
    order_matters = True  # noise belongs to rows

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {"classifier": LinearSpec(2 * sizes.n_features, sizes.n_classes)}

    @classmethod
    def group_size(cls, hparams: Mapping[str, Any]) -> int:
        return int(hparams["batch_size"]) if hparams["variant"] == "fixed" else 0

    def initial_state(self, sizes: Sizes) -> dict[str, Tensor]:
        return {"means": torch.zeros(sizes.n_envs, sizes.n_features)}

    def draw_noise(
        self, rng: np.random.Generator, steps: int, sizes: tuple[int, ...], hparams: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        return self._normal(rng, steps, sum(sizes))

    def scoring_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        return self._normal(rng, n)

    def _normal(self, rng: np.random.Generator, *shape: int) -> dict[str, np.ndarray]:
        if self.values["variant"] == "fixed":
            return {}
        return {"summary": rng.standard_normal((*shape, self.sizes.n_features), dtype=np.float32)}

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        z = separate_features(nets, batch)
        now = torch.stack([part.mean(0) for part in batch.split(z)])
        means = hp["mtl_ema"] * now + (1 - hp["mtl_ema"]) * state["means"]
        summary = means[batch.env] if self.values["variant"] == "fixed" else noise["summary"]
        risks = environment_risks(nets.classifier(torch.cat([z, summary], 1)), batch)
        return Outcome(risks.sum(), state={"means": means.detach()})

    def predict(self, nets: Networks, x: Tensor, hp: Tensors, state: Tensors, noise: Tensors) -> Tensor:
        z = nets.featurizer(x)
        summary = z.mean(0).expand_as(z) if self.values["variant"] == "fixed" else noise["summary"]
        return nets.classifier(torch.cat([z, summary], 1))

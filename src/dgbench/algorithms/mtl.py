"""Marginal transfer learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from dgbench.containers import Networks
from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.step import Normal, Outcome, Prediction, RandomInputs, Step


class MTL(Algorithm):
    """Show the classifier a summary of the environment too (Blanchard et al., 2021; DomainBed).

    The summary a_e of environment e, its logits o_e and the objective are

        a_e = mtl_ema * mean z_e + (1 - mtl_ema) * (its last value)
        o_e = h([z_e, a_e])
        L   = sum_e CE(o_e, y_e).

    DomainBed overwrites a_e with standard normal noise, in training and in prediction, so the
    moving average has no effect (``variant=reference``). ``variant=fixed``: a_e itself, with a
    gradient through the mean; a prediction uses the mean of the images that are scored together.
    """

    choices: ClassVar[Choices] = {"variant": ("reference", "fixed")}

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {"classifier": LinearSpec(2 * sizes.n_features, sizes.n_classes)}

    @classmethod
    def group_size(cls, hparams: Mapping[str, Any]) -> int:
        return int(hparams["batch_size"]) if hparams["variant"] == "fixed" else 0

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        return {"means": torch.zeros(self.sizes.n_envs, self.sizes.n_features)}

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        return self._noise(sum(sizes))

    def prediction_inputs(self, n: int) -> RandomInputs:
        return self._noise(n)

    def _noise(self, n: int) -> RandomInputs:
        if self.values["variant"] == "fixed":
            return {}
        return {"summary": Normal((n, self.sizes.n_features), "what takes the place of a_e")}

    def objective(self, s: Step) -> Outcome:
        z = s.separate_features()
        batch_means = torch.stack([part.mean(0) for part in s.split(z)])
        means = s.hp.mtl_ema * batch_means + (1 - s.hp.mtl_ema) * s.state["means"]
        summary = means[s.env] if self.values["variant"] == "fixed" else s.random["summary"]
        risks = s.environment_risks(s.networks.classifier(torch.cat([z, summary], 1)))
        return Outcome(risks.sum(), state={"means": means.detach()})

    def predict(self, s: Prediction) -> Tensor:
        z = s.networks.featurizer(s.x)
        if self.values["variant"] == "fixed":
            summary = z.mean(0).expand_as(z)
        else:
            summary = s.random["summary"]
        return s.networks.classifier(torch.cat([z, summary], 1))

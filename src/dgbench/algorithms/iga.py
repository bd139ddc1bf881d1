"""Inter-environmental gradient alignment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from dgbench.network_specs import Sizes
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.gradients import MODEL, detached, environment_gradients
from dgbench.objectives.step import Outcome, Step, penalized


class IGA(Algorithm):
    """Penalize the spread of the environments' gradients (Koyama and Yamaguchi, 2020; DomainBed).

    The objective is L = mean_e R_e + penalty * P with

        P = sum over environments and all parameters of (g_e - mean g)^2.

    ``iga_graph=true``: P is differentiated, which needs second derivatives (DomainBed since May
    2021). ``false``: the gradients are constants, so the update is that of the mean risk whatever
    the penalty (OoD-Bench). ``forward=separate``: one forward pass per environment; ``together``:
    one over all (OoD-Bench).
    """

    choices: ClassVar[Choices] = {"iga_graph": (True, False), "forward": ("separate", "together")}

    @classmethod
    def caution(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> str:
        if hparams["iga_graph"]:
            return ""
        return (
            "hparams.iga_graph=false gives the penalty no gradient, as in OoD-Bench's code, so "
            "this trains ERM"
        )

    def objective(self, s: Step) -> Outcome:
        params = s.networks.params(*MODEL)
        graph = self.values["iga_graph"]
        together = self.values["forward"] == "together"
        risks, gradients = environment_gradients(
            s.networks, params, s.batch, together, differentiable=graph
        )
        if not graph:
            gradients = detached(gradients)
        # the sum of g_e - mean g is 0, so it is no matter that the mean is a constant
        spreads = [(g - g.mean(0).detach()).pow(2).sum() for g in gradients.values()]
        return penalized(risks.mean(), s.hp.penalty, torch.stack(spreads).sum())

"""Group distributionally robust optimization."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dgbench.containers import Networks
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.step import Outcome, Step


class GroupDRO(Algorithm):
    """Weigh environments by an exponentiated-gradient ascent on their risks (Sagawa et al., 2020; DomainBed).

    q_e <- q_e * exp(eta * R_e), normalized to sum 1; L = sum_e q_e R_e with the updated q as a constant. q starts
    as all ones. ``groupdro_divide_by_n`` divides L by the number of environments, as DomainBed did before 2021.
    """

    choices: ClassVar[Choices] = {"groupdro_divide_by_n": (True, False)}

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        return {"q": torch.ones(self.sizes.n_envs)}

    def objective(self, s: Step) -> Outcome:
        risks = s.environment_risks(s.separate_logits())
        q = s.state["q"] * (s.hp.groupdro_eta * risks.detach()).exp()
        q = q / q.sum()
        loss = (q * risks).sum()
        loss = loss / len(risks) if self.values["groupdro_divide_by_n"] else loss
        return Outcome(loss, {"largest_env_weight": q.max()}, {"q": q})

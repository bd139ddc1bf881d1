"""Group distributionally robust optimization."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from dgbench.containers import Networks
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.step import Outcome, Step


class GroupDRO(Algorithm):
    """Weigh environments by an exponentiated-gradient ascent on their risks
    (Sagawa et al., 2020; DomainBed).

    The weights and the objective are

        q_e <- q_e * exp(eta * R_e), normalized to sum 1
        L = sum_e q_e R_e, with the updated q as a constant.

    q starts as all ones. ``groupdro_divide_by_n`` divides L by the number of environments, as
    DomainBed did before 2021. Of a step that draws environments, the others keep their share, as in
    WILDS.
    """

    draws_environments = True
    choices: ClassVar[Choices] = {"groupdro_divide_by_n": (True, False)}

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        return {"q": torch.ones(self.sizes.n_trained_envs)}

    def objective(self, s: Step) -> Outcome:
        risks = s.environment_risks(s.separate_logits())
        growth = (s.hp.groupdro_eta * risks.detach()).exp()
        if s.drawn is None:
            q = s.state["q"] * growth
            q = q / q.sum()
            weights = q
        else:
            numbers = torch.arange(self.sizes.n_trained_envs, device=risks.device)
            places = (s.drawn[:, None] == numbers).to(risks.dtype)  # (E drawn, E trained)
            q = s.state["q"] * (1 + (growth - 1) @ places)
            q = q / q.sum()
            weights = places @ q
        loss = (weights * risks).sum()
        if self.values["groupdro_divide_by_n"]:
            loss = loss / len(risks)
        return Outcome(loss, {"largest_env_weight": q.max()}, {"q": q})

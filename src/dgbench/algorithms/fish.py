"""Fish: inter-domain gradient matching."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch.nn import functional as F

from dgbench.objectives.contract import Algorithm, ParamGroup, Update
from dgbench.objectives.step import Outcome, Step


class Fish(Algorithm):
    """Descend on one environment after the other, then go part of the way
    (Shi et al., 2022; DomainBed).

    From theta_0, for e = 0, ..., E - 1 in turn: an Adam step on R_e at the weights that the
    environment before left. Then, for parameters and running statistics,

        theta <- theta_0 + meta_lr (theta - theta_0).

    Adam's moments and counter live on from step to step and count E a step. The loss is that of the
    last environment alone, and every schedule is one of the inner steps.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        first = [Update(partial(self._risk, e), ("model",)) for e in range(self.sizes.n_envs - 1)]
        self._updates = (*first, Update(self.objective, ("model",)))

    def param_groups(self) -> dict[str, ParamGroup]:
        return {"model": ParamGroup(("featurizer", "classifier"), pull="meta_lr")}

    def updates(self, step: int) -> Sequence[Update]:
        return self._updates

    def objective(self, s: Step) -> Outcome:
        """Compute R of the last environment."""
        return self._risk(-1, s)

    @staticmethod
    def _risk(e: int, s: Step) -> Outcome:
        """Compute R_e."""
        x = s.split(s.x)[e]
        y = s.split(s.y)[e]
        return Outcome(F.cross_entropy(s.networks.logits(x), y))

"""Meta-learning for domain generalization, first order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from dgbench.batches import EnvBatch, Tensors
from dgbench.containers import BoundNetworks
from dgbench.errors import ConfigError
from dgbench.network_specs import Sizes
from dgbench.objectives.contract import Algorithm, Choices
from dgbench.objectives.gradients import MODEL, detached, risk_and_gradient
from dgbench.objectives.pairing import Pairs, cyclic_pairs, pair_rows, weighted_risk
from dgbench.objectives.step import Outcome, Permutation, RandomInputs, Step

ADAM_EPSILON = 1e-8


class MLDG(Algorithm):
    """Learn on one environment so that another improves too
    (Li et al., 2018; DomainBed's first-order form).

    For each episode (i, j), always from the current parameters theta:

        g_i    = grad R_i(theta)
        theta' = theta - lr d / (|d| + 1e-8), with d = g_i + weight_decay theta
        g_j    = grad R_j(theta'), not differentiated through the step

    theta' is one step of a fresh Adam with g_i. The update is the sum over episodes of (g_i +
    mldg_beta g_j) / n, n being the number of environments. Running statistics of BatchNorm do not
    move, as in the reference.

    ``mldg_episodes=split``: n - ``n_meta_test`` random environments, each with one of the others in
    turn. ``pairs``: the n cyclic pairs of a random order.

    DomainBed has cut episodes by ``split`` since April 2022, and by ``pairs`` before. With two
    environments its default ``n_meta_test`` leaves none to train on: it takes steps without a
    gradient, here that is refused.
    """

    static = frozenset({"n_meta_test"})
    choices: ClassVar[Choices] = {"mldg_episodes": ("split", "pairs")}
    why_not_sharp = "it looks one step ahead and adds up gradients itself"
    why_not_low_rank = "it looks one step of the weights ahead and gives gradients itself"

    @classmethod
    def check(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        super().check(sizes, hparams)
        n_test = hparams["n_meta_test"]
        if hparams["mldg_episodes"] == "split" and not 1 <= n_test < sizes.n_envs:
            raise ConfigError(
                f"MLDG cannot set aside n_meta_test={n_test} of {sizes.n_envs} training "
                "environment(s) and learn from the rest; lower hparams.n_meta_test or set "
                "hparams.mldg_episodes=pairs"
            )

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        return {
            "permutation": Permutation(
                (len(sizes),), "order of the environments, from which episodes are cut"
            )
        }

    def _episodes(self, batch: EnvBatch, permutation: Tensor) -> Pairs:
        if self.values["mldg_episodes"] == "pairs":
            return cyclic_pairs(batch, permutation)
        n_test = self.values["n_meta_test"]
        n_train = len(batch.sizes) - n_test
        turn = torch.arange(n_train, device=permutation.device) % n_test
        return pair_rows(batch, permutation[:n_train], permutation[n_train:][turn])

    def objective(self, s: Step) -> Outcome:
        params = detached(s.networks.params(*MODEL))
        total = {key: torch.zeros_like(value) for key, value in params.items()}
        loss = meta_train_risk = meta_test_risk = s.x.new_zeros(())
        episodes = self._episodes(s.batch, s.random["permutation"])
        for first, second, weight in zip(
            episodes.first.unbind(), episodes.second.unbind(), episodes.weight.unbind(), strict=True
        ):
            risk_i, g_i = self._descend(s, params, first, weight)
            ahead = {key: self._adam_step(s, value, g_i[key]) for key, value in params.items()}
            risk_j, g_j = self._descend(s, ahead, second, weight)
            loss = loss + risk_i + s.hp.mldg_beta * risk_j
            meta_train_risk = meta_train_risk + risk_i.detach()
            meta_test_risk = meta_test_risk + risk_j.detach()
            total = {
                key: value + g_i[key] + s.hp.mldg_beta * g_j[key] for key, value in total.items()
            }
        n = len(s.sizes)
        m = len(episodes.first)
        logs = {"meta_train_risk": meta_train_risk / m, "meta_test_risk": meta_test_risk / m}
        return Outcome(loss / n, logs, grads={key: value / n for key, value in total.items()})

    @staticmethod
    def _descend(
        s: Step, params: Tensors, rows: Tensor, weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the risk of these rows at ``params``, and its gradient."""
        x = s.x[rows]
        y = s.y[rows]

        def risk(bound: BoundNetworks) -> Tensor:
            return weighted_risk(bound.logits(x), y, weight)

        return risk_and_gradient(s.networks, params, risk, keep_statistics=False)

    @staticmethod
    def _adam_step(s: Step, value: Tensor, gradient: Tensor) -> Tensor:
        """Take the first step of a fresh Adam from ``value``."""
        d = gradient + s.hp.weight_decay * value
        return value - s.hp.lr * d / (d.abs() + ADAM_EPSILON)

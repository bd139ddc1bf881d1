"""Minibatches and scoring passes of many members at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dgbench.data.module import EnvironmentData, joined
from dgbench.types import EnvBatch


class StackedData(EnvironmentData):
    """The data of R members over the same environments: x is (R, N, C, H, W), y is (R, N).

    Member i sees the minibatches it would see alone. All members are scored on the same passes.

    Args:
        members: the data of each member; same environments, steps, evaluations and minibatch size, and as many
            training environments each.
    """

    def __init__(self, members: Sequence[EnvironmentData]) -> None:
        first = members[0]
        super().__init__(
            first.environments,
            first.training,
            list({(score.env, score.subset): score for member in members for score in member.scores}.values()),
            steps=first.steps,
            eval_every=first.eval_every,
            batch_size=first.batch_size,
            eval_batch_size=first.eval_batch_size,
            seed=0,
            group_size=first.group_size,
        )
        self.members = list(members)

    def step_bytes(self) -> int:
        """Bytes of the images of one step of all members."""
        return super().step_bytes() * len(self.members)

    def indices(self, first: int, n: int, share: tuple[int, int] = (0, 1)) -> Tensor:
        """Positions in the store of the minibatches of n steps, members side by side within a step; one process."""
        return torch.from_numpy(np.concatenate([member.order(first + k) for k in range(n) for member in self.members]))

    def batches(self, first: int, n: int, share: tuple[int, int] = (0, 1)) -> list[EnvBatch]:
        """The minibatches of steps ``first .. first + n - 1``, members side by side; a stack has one process."""
        noise = joined([member.noise(first + k) for k in range(n) for member in self.members])
        x, y = self.environments.gather_for_training(self.indices(first, n), noise)
        shape = (n, len(self.members), -1)
        sizes = (self.batch_size,) * len(self.training)
        xs, ys = x.view(*shape, *x.shape[1:]), y.view(shape)
        return [EnvBatch(xs[k], ys[k], sizes) for k in range(n)]

"""The LightningDataModule: training minibatches and scoring passes of one member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from dgbench.data.environments import Environments, Pass, PassLoader
from dgbench.errors import ConfigError
from dgbench.seeding import derive
from dgbench.types import EnvBatch, Score

ORDER_BLOCK = 64  # steps whose minibatches come from one generator; the order of a step depends on nothing else
#: of minibatches gathered at once, so that the loop's cost is paid rarely: on a CPU, whose caches should hold them, and
#: on other devices, where that does not matter
CHUNK_BYTES = (8 * 2**20, 256 * 2**20)
CHUNK_STEPS = 32
SCORE_BYTES = 64 * 2**20  # images scored at once, whatever eval_batch_size: 111 of 224 x 224 pixels


class EnvironmentData(pl.LightningDataModule):
    """Minibatches of the training environments, and everything that is scored.

    One Lightning epoch is the stretch between two evaluations, so that a resumed run starts at an epoch.

    Args:
        environments: the images.
        training: names of the environments to train on.
        scores: errors to record at an evaluation.
        steps: optimizer steps in all.
        eval_every: steps between evaluations.
        batch_size: images per environment and step, drawn uniformly with replacement (DomainBed).
        eval_batch_size: images per scoring batch; fewer where they are large.
        seed: base seed of the order.
        group_size: images whose predictions depend on one another; they are scored in an order that has nothing to do
            with their labels, in batches of whole groups. 0: each image by itself.

    Raises:
        ConfigError: a minibatch is larger than an environment.
    """

    def __init__(
        self,
        environments: Environments,
        training: Sequence[str],
        scores: Sequence[Score],
        *,
        steps: int,
        eval_every: int,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
        group_size: int = 0,
    ) -> None:
        super().__init__()
        self.group_size = group_size
        self.environments, self.training, self.scores = environments, list(training), list(scores)
        self.steps, self.eval_every, self.batch_size, self.eval_batch_size = (
            steps,
            eval_every,
            batch_size,
            eval_batch_size,
        )
        self.order_seed = derive(seed, "order")
        self._subsets = [environments.subset(env, "train") for env in self.training]
        for env, subset in zip(self.training, self._subsets, strict=True):
            if batch_size > len(subset):
                raise ConfigError(
                    f"trainer.batch_size={batch_size} is larger than environment {env} with {len(subset)} training "
                    f"images; set trainer.batch_size={len(subset)} or less"
                )
        self.noise_seed = derive(seed, "augmentation")
        self._block: tuple[int, np.ndarray] | None = None
        self._noise_block: tuple[int, dict[str, np.ndarray]] | None = None
        self.wanted: Callable[[str], bool] = lambda name: True  # whether a pass is scored, asked when its turn comes
        self.chunk_bytes = CHUNK_BYTES[0]
        self.share = (0, 1)  # number of this process, and how many share a member's minibatches and evaluations
        self.allow_zero_length_dataloader_with_multiple_devices = True  # a pass may have fewer batches than processes

    def setup(self, stage: str) -> None:
        """Move the images to the device of the trainer."""
        if self.trainer is not None:
            device = self.trainer.strategy.root_device
            self.environments.to(device)
            self.chunk_bytes = CHUNK_BYTES[device.type != "cpu"]
            self.share = (self.trainer.global_rank, self.trainer.world_size)

    def train_dataloader(self) -> StretchLoader:
        """Chunks of minibatches up to the next evaluation."""
        return StretchLoader(self, lambda: int(self.trainer.lightning_module.steps_done))  # type: ignore[union-attr,operator,arg-type]

    def val_dataloader(self) -> list[PassLoader]:
        """One loader per scoring pass, in the order of :meth:`pass_names`."""
        passes = self.environments.passes(self.pass_names())
        if self.group_size:
            passes = {name: shuffled(scored, name) for name, scored in passes.items()}
        size = max(1, min(self.eval_batch_size, SCORE_BYTES // (4 * int(np.prod(self.environments.image)))))
        if size > self.group_size > 0:
            size -= size % self.group_size
        rank, count = self.share
        loaders = [
            PassLoader(
                self.environments, name, scored, size, ((rank + i) % count, count), lambda name: self.wanted(name)
            )
            for i, (name, scored) in enumerate(passes.items())
        ]
        if not any(map(len, loaders)):  # Lightning would leave out the evaluation of this process: one for no score
            first = next(iter(passes.values()))
            feature = None if first.feature is None else first.feature[:1]
            one = replace(first, indices=first.indices[:1], feature=feature)
            loaders[0] = PassLoader(self.environments, "", one, 1)
        return loaders

    def pass_names(self) -> list[str]:
        """Every pass that some score mixes, once; those that only ``test`` needs come last."""
        ordered = sorted(self.scores, key=lambda score: score.subset == "test")
        return list(dict.fromkeys(name for score in ordered for name in score.mixture))

    def transfer_batch_to_device(self, batch: object, device: torch.device, dataloader_idx: int) -> object:
        """Nothing to move: batches are gathered where the images live."""
        return batch

    def chunk_steps(self) -> int:
        """Steps gathered at once."""
        return max(1, min(CHUNK_STEPS, self.chunk_bytes // self.step_bytes()))

    def step_bytes(self) -> int:
        """Bytes of the images of one step, in single precision."""
        return 4 * self.batch_size * len(self.training) * int(np.prod(self.environments.image))

    def batches(self, first: int, n: int, share: tuple[int, int] = (0, 1)) -> list[EnvBatch]:
        """The minibatches of steps ``first .. first + n - 1``; a pure function of the seed and the steps.

        Args:
            share: (k, n) takes the k-th of n equal parts of every environment's rows.
        """
        rows = self._rows(share)
        noise = joined([{name: values[rows] for name, values in self.noise(first + k).items()} for k in range(n)])
        x, y = self.environments.gather_for_training(self.indices(first, n, share), noise)
        sizes = (self.batch_size // share[1],) * len(self.training)
        return [EnvBatch(xs, ys, sizes) for xs, ys in zip(x.chunk(n), y.chunk(n), strict=True)]

    def indices(self, first: int, n: int, share: tuple[int, int] = (0, 1)) -> Tensor:
        """Positions in the store of the minibatches of n steps, one after the other."""
        rows = self._rows(share)
        return torch.from_numpy(np.concatenate([self.order(first + k)[rows] for k in range(n)]))

    def _rows(self, share: tuple[int, int]) -> np.ndarray:
        """Rows of a step's minibatch that belong to a share."""
        number, count = share
        size = self.batch_size // count
        own = np.arange(number * size, (number + 1) * size)
        return (np.arange(len(self.training))[:, None] * self.batch_size + own).flatten()

    def order(self, step: int) -> np.ndarray:
        """(N,) positions in the store of one step's minibatch, environment by environment.

        Each environment has its own stream, so it shows the same images at the same step in every fold.
        """
        block, offset = divmod(step, ORDER_BLOCK)
        if self._block is None or self._block[0] != block:
            drawn = [
                subset[
                    np.random.default_rng(derive(self.order_seed, env, block)).integers(
                        len(subset), size=(ORDER_BLOCK, self.batch_size)
                    )
                ]
                for env, subset in zip(self.training, self._subsets, strict=True)
            ]
            self._block = (block, np.concatenate(drawn, axis=1))
        positions: np.ndarray = self._block[1][offset]
        return positions

    def noise(self, step: int) -> dict[str, np.ndarray]:
        """Random numbers for the augmentation of one step's minibatch; each has N rows, as :meth:`order`."""
        block, offset = divmod(step, ORDER_BLOCK)
        if self._noise_block is None or self._noise_block[0] != block:
            n = ORDER_BLOCK * self.batch_size
            drawn = [
                {
                    name: values.reshape(ORDER_BLOCK, self.batch_size, *values.shape[1:])
                    for name, values in self.environments.training_noise(
                        np.random.default_rng(derive(self.noise_seed, env, block)), n
                    ).items()
                }
                for env in self.training
            ]
            self._noise_block = (block, joined(drawn, axis=1))
        return {name: values[offset] for name, values in self._noise_block[1].items()}


def shuffled(scored: Pass, name: str) -> Pass:
    """The images of a pass in an order that depends on its name alone."""
    order = np.random.default_rng(derive(0, "groups", name)).permutation(len(scored.indices))
    rows = torch.from_numpy(order).to(scored.indices.device)
    return Pass(scored.indices[rows], None if scored.feature is None else scored.feature[rows])


def joined(parts: Sequence[Mapping[str, np.ndarray]], axis: int = 0) -> dict[str, np.ndarray]:
    """Dictionaries of arrays with the same names as one."""
    return {name: np.concatenate([part[name] for part in parts], axis) for name in parts[0]}


class StretchLoader:
    """Iterates over the chunks between the step a module has reached and its next evaluation."""

    def __init__(self, data: EnvironmentData, steps_done: Callable[[], int]) -> None:
        self.data, self.steps_done = data, steps_done

    def __iter__(self) -> Iterator[list[EnvBatch]]:
        step = self.steps_done()
        stop = min(self.data.steps, (step // self.data.eval_every + 1) * self.data.eval_every)
        size = self.data.chunk_steps()
        chunks = [(first, min(size, stop - first)) for first in range(step, stop, size)]
        self.data.environments.expect(self.data.indices(first, n, self.data.share) for first, n in chunks)
        for first, n in chunks:
            yield self.data.batches(first, n, self.data.share)

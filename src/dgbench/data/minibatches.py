"""The LightningDataModule: training minibatches and eval sets of one run.

Several runs that train together share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import chain
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from dgbench.batches import EnvBatch, ErrorRecipe, EvalBatch, TrainingImages
from dgbench.data.datasets.small_environments import batch_refusal
from dgbench.data.description import need_training_images
from dgbench.data.environments import Environments, EvalSet, Store
from dgbench.errors import ConfigError
from dgbench.seeding import derive

Noise = dict[str, np.ndarray]  #: random numbers of an augmentation, by name

#: steps whose minibatches come from one generator; the order of a step depends on nothing else
ORDER_BLOCK = 64
#: bytes of the minibatches gathered at once, so that the loop's cost is paid rarely: on a CPU,
#: whose caches should hold them, and on other devices, where that does not matter
CHUNK_BYTES = (8 * 2**20, 256 * 2**20)
CHUNK_STEPS = 32
#: bytes of the images evaluated at once, whatever eval_batch_size: 111 images of 224 x 224 pixels
SCORE_BYTES = 64 * 2**20
#: how the images of a minibatch are drawn, key ``trainer.sampling``
UNIFORM = "uniform"
CLASS_BALANCED = "class_balanced"
POOLED = "pooled"


class RunOrder:
    """Which images one run sees at which step, and the random numbers of their augmentation.

    Args:
        environments: the images.
        training: names of the environments to train on.
        batch_size: images per environment and step, drawn uniformly with replacement (DomainBed).
        seed: base seed of the order.
        environments_per_step: environments that each step draws, without repetition and each as
            likely; None is all.
        repeats: a minibatch may be larger than an environment.
        sampling: ``uniform`` draws every image of an environment as likely; ``class_balanced``
            every class of an environment as likely, and then each of its images (DomainBed);
            ``pooled`` draws all images of a step from those of all environments together, each as
            likely, whatever its environment (WILDS' ERM).

    Raises:
        ConfigError: a minibatch is larger than an environment.
    """

    def __init__(
        self,
        environments: Environments,
        training: Sequence[str],
        batch_size: int,
        seed: int,
        environments_per_step: int | None = None,
        repeats: bool = False,
        sampling: str = UNIFORM,
    ) -> None:
        self.environments = environments
        self.training = list(training)
        self.batch_size = batch_size
        self.order_seed = derive(seed, "order")
        self.noise_seed = derive(seed, "augmentation")
        self._subsets = [environments.table.subset(env, "train") for env in self.training]
        images: dict[str, int] = {}
        for env, subset in zip(self.training, self._subsets, strict=True):
            need_training_images(env, len(subset))
            images[env] = len(subset)
        if not repeats and batch_size > min(images.values(), default=batch_size):
            raise ConfigError(batch_refusal(batch_size, images))
        self.environments_per_step = environments_per_step
        self._pooled = sampling == POOLED
        self._chances: list[np.ndarray | None] = [None] * len(self._subsets)
        if sampling == CLASS_BALANCED:
            labels = environments.catalog.labels
            self._chances = [balanced_chances(labels[subset]) for subset in self._subsets]
        self._block: tuple[int, np.ndarray] | None = None
        self._noise_block: tuple[int, dict[str, np.ndarray]] | None = None

    def order(self, step: int) -> np.ndarray:
        """Draw the (N,) positions in the store of one step's minibatch, environment by environment.

        Each environment has its own stream, so it shows the same images at the same step in every
        fold.
        """
        if self.environments_per_step is not None:
            return np.concatenate([self._drawn_images(number, step) for number in self.drawn(step)])
        block, offset = divmod(step, ORDER_BLOCK)
        if self._block is None or self._block[0] != block:
            drawn = self._pooled_block(block) if self._pooled else self._drawn_block(block)
            self._block = (block, drawn)
        positions: np.ndarray = self._block[1][offset]
        return positions

    def _drawn_block(self, block: int) -> np.ndarray:
        """Draw the (steps, N) positions of a block of steps, each environment by its own stream."""
        drawn = []
        for number, env in enumerate(self.training):
            rng = np.random.default_rng(derive(self.order_seed, env, block))
            drawn.append(self._images_of(number, rng, (ORDER_BLOCK, self.batch_size)))
        return np.concatenate(drawn, axis=1)

    def _pooled_block(self, block: int) -> np.ndarray:
        """Draw the (steps, N) positions of a block of steps from all environments together."""
        pool = np.concatenate(self._subsets)
        rng = np.random.default_rng(derive(self.order_seed, POOLED, block))
        size = (ORDER_BLOCK, self.batch_size * len(self.training))
        positions: np.ndarray = pool[rng.integers(len(pool), size=size)]
        return positions

    def _images_of(
        self, number: int, rng: np.random.Generator, size: int | tuple[int, ...]
    ) -> np.ndarray:
        """Draw positions of an environment with replacement, an array of this size."""
        subset = self._subsets[number]
        chances = self._chances[number]
        if chances is None:
            positions: np.ndarray = subset[rng.integers(len(subset), size=size)]
            return positions
        return rng.choice(subset, size=size, p=chances)

    @property
    def minibatches(self) -> int:
        """Minibatches of a step, one for each of its environments."""
        return self.environments_per_step or len(self.training)

    def drawn(self, step: int) -> np.ndarray:
        """Draw the (E,) numbers of the environments of one step, in ascending order."""
        rng = np.random.default_rng(derive(self.order_seed, "environments", "step", step))
        return np.sort(rng.choice(len(self.training), self.minibatches, replace=False))

    def _drawn_images(self, number: int, step: int) -> np.ndarray:
        """Draw the (B,) positions of one environment at a step that has drawn it."""
        rng = np.random.default_rng(derive(self.order_seed, self.training[number], "step", step))
        return self._images_of(number, rng, self.batch_size)

    def _drawn_noise(self, step: int) -> dict[str, np.ndarray]:
        """Draw the random numbers that augment a step that has drawn its environments."""
        noises = []
        for number in self.drawn(step):
            seed = derive(self.noise_seed, self.training[number], "step", step)
            rng = np.random.default_rng(seed)
            noises.append(self.environments.store.training_noise(rng, self.batch_size))
        return _concatenated(noises)

    def images(self, at_once: int) -> Iterator[TrainingImages]:
        """Iterate over all training images without augmentation, ``at_once`` at a time.

        They come environment by environment.
        """
        for number, subset in enumerate(self._subsets):
            for first in range(0, len(subset), at_once):
                index = torch.from_numpy(np.sort(subset)[first : first + at_once])
                x, y = self.environments.store.gather(index)
                yield TrainingImages(x, y, torch.full_like(y, number), index.to(y.device))

    def noise(self, step: int) -> dict[str, np.ndarray]:
        """Draw the random numbers that augment one step's minibatch, by name.

        Each has N rows, as :meth:`order`.
        """
        if self.environments_per_step is not None:
            return self._drawn_noise(step)
        block, offset = divmod(step, ORDER_BLOCK)
        if self._noise_block is None or self._noise_block[0] != block:
            shape = (ORDER_BLOCK, self.batch_size)
            noises = []
            for env in self.training:
                rng = np.random.default_rng(derive(self.noise_seed, env, block))
                flat = self.environments.store.training_noise(rng, ORDER_BLOCK * self.batch_size)
                noise = {}
                for name, drawn in flat.items():
                    noise[name] = drawn.reshape(*shape, *drawn.shape[1:])
                noises.append(noise)
            self._noise_block = (block, _concatenated(noises, axis=1))
        return {name: values[offset] for name, values in self._noise_block[1].items()}


def balanced_chances(labels: np.ndarray) -> np.ndarray:
    """Compute the (n,) chances of images by which each class that occurs is as likely.

    That of an image is 1 / (images of its class x number of classes), as in DomainBed's
    ``make_weights_for_balanced_classes``.

    Args:
        labels: (n,) classes of the images.
    """
    classes, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    chances: np.ndarray = 1.0 / (counts[places] * len(classes))
    return chances


def _concatenated(noises: Sequence[Mapping[str, np.ndarray]], axis: int = 0) -> Noise:
    """Join random numbers of the same names along an axis."""
    joined = {}
    for name in noises[0]:
        joined[name] = np.concatenate([noise[name] for noise in noises], axis)
    return joined


class EnvironmentData(pl.LightningDataModule):
    """Minibatches of the training environments, and everything that is evaluated.

    One Lightning epoch is an evaluation interval, the steps between two evaluations, so that a
    resumed run starts at an epoch. A batch of one run is (N, C, H, W); one of a :meth:`stack` of R
    runs is (R, N, C, H, W), in which each run sees the minibatches that it would see alone.

    Args:
        environments: the images.
        training: names of the environments to train on.
        recipes: errors to record at an evaluation.
        steps: optimizer steps in all.
        eval_every: steps between evaluations.
        batch_size: images per environment and step, drawn uniformly with replacement (DomainBed).
        eval_batch_size: images per evaluation batch; fewer if they are large.
        seed: base seed of the order.
        group_size: images whose predictions depend on one another; they are evaluated in an order
            that has nothing to do with their labels, in batches of whole groups. 0: each image by
            itself.
        environments_per_step, repeats, sampling: see :class:`RunOrder`.

    Attributes:
        runs: the order of each run.

    Raises:
        ConfigError: a minibatch is larger than an environment.
    """

    def __init__(
        self,
        environments: Environments,
        training: Sequence[str],
        recipes: Sequence[ErrorRecipe],
        *,
        steps: int,
        eval_every: int,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
        group_size: int = 0,
        environments_per_step: int | None = None,
        repeats: bool = False,
        sampling: str = UNIFORM,
    ) -> None:
        super().__init__()
        self.environments = environments
        self.training = list(training)
        self.recipes = list(recipes)
        self.steps = steps
        self.eval_every = eval_every
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.group_size = group_size
        order = RunOrder(
            environments, training, batch_size, seed, environments_per_step, repeats, sampling
        )
        self.runs = [order]
        self.stacked = False
        # whether an eval set is evaluated, asked at its turn
        self.wanted: Callable[[str], bool] = lambda name: True
        self.chunk_bytes = CHUNK_BYTES[0]
        # Lightning's batches are single steps, not all that are gathered at once
        self.one_by_one = False
        # number of this process, and how many divide a run's minibatches and evaluations
        self.part = (0, 1)
        # an eval set may have fewer batches
        self.allow_zero_length_dataloader_with_multiple_devices = True

    @staticmethod
    def stack(runs: Sequence[EnvironmentData]) -> EnvironmentData:
        """Stack the data of R runs side by side; all are evaluated on the same eval sets.

        Args:
            runs: the data of each run; same environments, steps, evaluations and minibatch size,
                and as many training environments each.
        """
        data = copy(runs[0])
        recipes = {}
        orders = []
        for run in runs:
            orders += run.runs
            for recipe in run.recipes:
                recipes[recipe.env, recipe.subset] = recipe
        data.recipes = list(recipes.values())
        data.runs = orders
        data.stacked = True
        return data

    def setup(self, stage: str) -> None:
        """Move the images to the device of the trainer."""
        if self.trainer is not None:
            device = self.trainer.strategy.root_device
            self.environments.store.to(device)
            self.chunk_bytes = CHUNK_BYTES[device.type != "cpu"]
            self.part = (self.trainer.global_rank, self.trainer.world_size)
            if self.stacked:
                self.part = (0, 1)

    def train_dataloader(self) -> IntervalLoader:
        """Return a loader of chunks of minibatches up to the next evaluation."""

        def steps_done() -> int:
            module: Any = self.trainer and self.trainer.lightning_module
            return int(module.steps_done)

        return IntervalLoader(self, steps_done)

    def val_dataloader(self) -> list[EvalSetLoader]:
        """Build one loader per eval set, in the order of :meth:`eval_set_names`."""
        eval_sets = self.environments.eval_sets(self.eval_set_names())
        if self.group_size:
            eval_sets = {name: shuffled(scored, name) for name, scored in eval_sets.items()}
        size = self._eval_images()
        if size > self.group_size > 0:
            size -= size % self.group_size
        store = self.environments.store
        rank, count = self.part
        loaders = []
        for i, (name, scored) in enumerate(eval_sets.items()):
            part = ((rank + i) % count, count)
            loaders.append(
                EvalSetLoader(store, name, scored, size, part, lambda name: self.wanted(name))
            )
        # Lightning would leave out the evaluation of a process without batches: one for no error
        if not any(map(len, loaders)):
            first = next(iter(eval_sets.values()))
            loaders[0] = EvalSetLoader(store, "", first.at(slice(1)), 1)
        return loaders

    def eval_set_names(self) -> list[str]:
        """List every eval set that some error mixes, once.

        Those that only ``test`` errors need come last.
        """
        ordered = sorted(self.recipes, key=lambda score: score.subset == "test")
        return list(dict.fromkeys(chain.from_iterable(score.mixture for score in ordered)))

    def transfer_batch_to_device(
        self, batch: object, device: torch.device, dataloader_idx: int
    ) -> object:
        """Return the batch as it is: batches are gathered on the device where the images are."""
        return batch

    def chunk_steps(self) -> int:
        """Compute how many steps are gathered at once."""
        return max(1, min(CHUNK_STEPS, self.chunk_bytes // self.step_bytes()))

    def step_bytes(self) -> int:
        """Compute the bytes of the images of one step of all runs, in single precision."""
        images = len(self.runs) * self.batch_size * self.runs[0].minibatches
        return 4 * images * int(np.prod(self.environments.store.image))

    def batches(self, first: int, n: int, part: tuple[int, int] = (0, 1)) -> list[EnvBatch]:
        """Gather the minibatches of steps ``first .. first + n - 1``.

        It is a pure function of the seed and the steps.

        Args:
            part: (k, n) takes the k-th of n equal parts of every environment's rows.
        """
        rows = self._rows(part)
        steps = range(first, first + n)
        noises = []
        for step in steps:
            for run in self.runs:
                noises.append({name: drawn[rows] for name, drawn in run.noise(step).items()})
        noise = _concatenated(noises)
        positions = self.indices(first, n, part)
        x, y = self.environments.store.gather_for_training(positions, noise)
        sizes = (self.batch_size // part[1],) * self.runs[0].minibatches
        shape = (n, len(self.runs), len(rows)) if self.stacked else (n, len(rows))
        xs = x.reshape(*shape, *x.shape[1:])
        ys = y.reshape(shape)
        index = positions.to(y.device).reshape(shape)
        batches = []
        for k, step in enumerate(steps):
            environments = self._drawn(step, y.device)
            batches.append(EnvBatch(xs[k], ys[k], sizes, index[k], environments))
        return batches

    def _drawn(self, step: int, device: torch.device) -> Tensor | None:
        """Draw the numbers of a step's environments, (E,) or (R, E) of a stack; None for all."""
        if self.runs[0].environments_per_step is None:
            return None
        numbers = np.stack([run.drawn(step) for run in self.runs])
        return torch.from_numpy(numbers if self.stacked else numbers[0]).to(device)

    def training_images(self, i: int) -> Iterator[TrainingImages]:
        """Iterate over all training images of run ``i``, as they are evaluated, in batches."""
        return self.runs[i].images(self._eval_images())

    def _eval_images(self) -> int:
        """Compute how many images are evaluated at once."""
        image_bytes = 4 * int(np.prod(self.environments.store.image))
        return max(1, min(self.eval_batch_size, SCORE_BYTES // image_bytes))

    def indices(self, first: int, n: int, part: tuple[int, int] = (0, 1)) -> Tensor:
        """List the store positions of n steps' minibatches, one step after the other.

        The runs of a stack stand side by side within each step.
        """
        rows = self._rows(part)
        orders = []
        for step in range(first, first + n):
            orders += [run.order(step)[rows] for run in self.runs]
        return torch.from_numpy(np.concatenate(orders))

    def _rows(self, part: tuple[int, int]) -> np.ndarray:
        """Compute the rows of a step's minibatch that belong to a part."""
        number, count = part
        size = self.batch_size // count
        offsets = np.arange(number * size, (number + 1) * size)
        return (np.arange(self.runs[0].minibatches)[:, None] * self.batch_size + offsets).flatten()


def shuffled(scored: EvalSet, name: str) -> EvalSet:
    """Shuffle the images of an eval set into an order that depends on its name alone."""
    order = np.random.default_rng(derive(0, "groups", name)).permutation(len(scored.indices))
    return scored.at(torch.from_numpy(order))


class IntervalLoader:
    """Iterates over the chunks between the step a module has reached and its next evaluation."""

    def __init__(self, data: EnvironmentData, steps_done: Callable[[], int]) -> None:
        self.data = data
        self.steps_done = steps_done

    def __iter__(self) -> Iterator[list[EnvBatch]]:
        step = self.steps_done()
        stop = min(self.data.steps, (step // self.data.eval_every + 1) * self.data.eval_every)
        size = self.data.chunk_steps()
        chunks = [(first, min(size, stop - first)) for first in range(step, stop, size)]
        data = self.data
        data.environments.store.expect(data.indices(first, n, data.part) for first, n in chunks)
        for first, n in chunks:
            batches = data.batches(first, n, data.part)
            if data.one_by_one:
                yield from ([batch] for batch in batches)
            else:
                yield batches


class EvalSetLoader:
    """Batches of one eval set, in order, gathered on the device.

    Args:
        store: of the images.
        name: of the eval set.
        scored: its images.
        batch_size: images per batch.
        part: number of this process and how many there are; they take turns.
        wanted: whether the eval set of that name is evaluated this time.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        scored: EvalSet,
        batch_size: int,
        part: tuple[int, int] = (0, 1),
        wanted: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self.store = store
        self.name = name
        self.scored = scored
        self.batch_size = batch_size
        self.wanted = wanted
        first, count = part
        self._numbers = range(first, -(-len(scored.indices) // batch_size), count)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[EvalBatch]:
        if not self.wanted(self.name):
            return
        slices = [slice(n * self.batch_size, (n + 1) * self.batch_size) for n in self._numbers]
        self.store.expect(self.scored.indices[part] for part in slices)
        for number, part in zip(self._numbers, slices, strict=True):
            batch = self.scored.at(part)
            x, y = self.store.gather(batch.indices, batch.feature)
            yield EvalBatch(x, y, self.name, number, batch.indices, batch.pictures)

"""Predict with R runs of one algorithm: random inputs, errors counted batch by batch, surveys of
the training images.

Random inputs are functions of the run's seed, the step and the minibatch alone, so that resuming is
exact. Before some steps an algorithm may look at all training images of a run (a *survey*) and keep
what it makes of them. Under ``trainer.precision=bf16-mixed`` and ``16-mixed`` networks compute in
half precision, and nothing else does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.batches import EvalBatch, Tensors, TrainingImages
from dgbench.containers import AnyNetworks, Networks, example_of
from dgbench.errors import ConfigError
from dgbench.objectives.contract import Algorithm
from dgbench.objectives.step import Hyperparameters, Prediction, Surveyed, draw
from dgbench.phases import phase
from dgbench.seeding import derive

# number of a run -> batches of its training images
TrainingImagesOf = Callable[[int], Iterable[TrainingImages]]

# of one layer: what is larger is new memory each time, which the kernel has to clear
CPU_BYTES = 32 * 2**20
DEVICE_BYTES = 512 * 2**20
# of what is kept of the pictures of an evaluation; more is computed again in each environment
KEPT_BYTES = 2**31
# steps whose random inputs come from one generator; the draw of a step depends on nothing else
BLOCK = 64
# numbers of one step from which on a block is shorter, so that few are kept
LARGE, SHORT_BLOCK = (
    2**19,
    4,
)


class Draws:
    """Draws what an algorithm declares."""

    def __init__(self, algorithm: Algorithm, seed: int) -> None:
        self.algorithm, self.seed = algorithm, derive(seed, "noise")
        self._lengths: dict[tuple[int, ...], int] = {}  # steps of a block, by minibatch sizes
        self._blocks: dict[
            int, tuple[tuple[object, ...], Tensors]
        ] = {}  # of each micro-batch: the block drawn last

    def at(self, step: int, sizes: tuple[int, ...], like: Tensor, part: int = 0) -> Tensors:
        """Draw the random inputs of one step.

        Args:
            step: counts from 0.
            sizes: of the minibatches.
            like: floating-point tensor whose type and device they get.
            part: number of the micro-batch.
        """
        length = self._length(sizes)
        block, offset = divmod(step, length)
        key = (block, sizes, like.device, like.dtype)
        block_drawn = self._blocks.get(part)
        if block_drawn is None or block_drawn[0] != key:
            rng = np.random.default_rng([self.seed, block, *([part] if part else [])])
            drawn = draw(self.algorithm.random_inputs(sizes), rng, length)
            block_drawn = self._blocks[part] = (key, as_tensors(drawn, like))
        return {name: values[offset] for name, values in block_drawn[1].items()}

    def _length(self, sizes: tuple[int, ...]) -> int:
        """Choose the number of steps in a block of random inputs: fewer where each step draws many
        numbers.
        """
        if sizes not in self._lengths:
            numbers = sum(
                math.prod(spec.shape) for spec in self.algorithm.random_inputs(sizes).values()
            )
            self._lengths[sizes] = BLOCK if numbers <= LARGE else SHORT_BLOCK
        return self._lengths[sizes]

    def for_prediction(self, n: int, like: Tensor, *purpose: str | int) -> Tensors:
        """Draw the random inputs of a prediction on ``n`` images; ``purpose`` names the batch of
        images.
        """
        rng = np.random.default_rng(derive(self.seed, "score", *purpose))
        drawn = draw(self.algorithm.prediction_inputs(n), rng, 1)
        return {name: values[0] for name, values in as_tensors(drawn, like).items()}


def as_tensors(arrays: Mapping[str, np.ndarray], like: Tensor) -> dict[str, Tensor]:
    """Convert arrays to tensors on the device of ``like``, and floating-point ones to its dtype."""
    return {
        name: torch.as_tensor(
            array, dtype=like.dtype if array.dtype.kind == "f" else None, device=like.device
        )
        for name, array in arrays.items()
    }


class Pictures:
    """Keeps what predictions need of each picture alone, computed when it first appears in an
    evaluation.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop what was computed, and free its memory."""
        self._known = torch.zeros(0, dtype=torch.bool)  # by number
        self._values = torch.zeros(0)  # (R, numbers, ...)

    def of(self, pictures: Tensor, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Look up the (R, n, ...) values of the pictures ``x``; compute those that are not known
        yet.

        Args:
            pictures: (n,) their numbers, on the CPU.
            x: (n, C, H, W).
            compute: (m, C, H, W) -> (R, m, ...).
        """
        count = max(len(self._known), int(pictures.max()) + 1)
        is_known = F.pad(self._known, (0, count - len(self._known)))
        new = ~is_known[pictures]
        if new.any():
            values = compute(x[new.to(x.device)])
            if count * values[:, :1].numel() * values.element_size() > KEPT_BYTES:
                self.forget()  # so that no picture of later batches is computed twice
                return values if new.all() else compute(x)
            if count > len(self._known):
                grown = values.new_empty(len(values), count, *values.shape[2:])
                if len(self._known):
                    grown[:, : len(self._known)] = self._values
                self._values, self._known = grown, is_known
            self._values[:, pictures[new].to(x.device)] = values
            self._known[pictures] = True
        return self._values[:, pictures.to(x.device)]


class OneRun(Protocol):
    """A single run: :class:`~dgbench.training.modules.single.SteppedRun`."""

    algorithm: Algorithm
    networks: Networks
    draws: Draws
    steps_done: int

    def activations(self, image: tuple[int, ...]) -> list[int]:
        """Count the numbers that each layer of the featurizer puts out for one image of this shape."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> Any:
        """Load weights, memory and ``steps_done``."""


class PredictingModule(nn.Module, ABC):
    """Predicts with R runs of one algorithm."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        #: of the first run; of the others it differs in hyperparameters not static
        self.algorithm = algorithm
        #: whether validation steps also return ``logits``; not part of a state
        self.gives_logits = False
        #: the training images of each run, for algorithms with surveys; not part of a state
        self.training_images: TrainingImagesOf | None = None
        self._pictures = Pictures()

    @property
    @abstractmethod
    def runs(self) -> Sequence[OneRun]:
        """The R runs."""

    @abstractmethod
    def evaluated(self, i: int) -> tuple[AnyNetworks, Hyperparameters, Tensors]:
        """Return networks in evaluation mode, hyperparameters and memory of run ``i``, as they are
        now.
        """

    @abstractmethod
    def remember(self, i: int, state: Tensors) -> None:
        """Store new values in the memory of run ``i``."""

    @property
    def size(self) -> int:
        """Number of runs, R."""
        return len(self.runs)

    @property
    def device(self) -> torch.device:
        """Device of its networks."""
        return example_of(self.runs[0].networks).device

    def forget_pictures(self) -> None:
        """Drop what was computed of each picture; weights are about to change, or an evaluation
        ended.
        """
        self._pictures.forget()

    def count_errors(self, images: EvalBatch) -> dict[str, Tensor]:
        """Count the errors of every run on one batch, and sum its loss.

        Returns:
            ``seen``, 0-dimensional; ``wrong`` (R,); ``loss`` (R,) float64, the summed cross
            entropy; where ``gives_logits`` is set, ``logits`` (R, n, K).
        """
        n = len(images.y)
        logits = self.predict_logits(images.x, images.name, images.index, pictures=images.pictures)
        wrong = (logits.argmax(2) != images.y).sum(1)
        losses = F.cross_entropy(logits.flatten(0, 1), images.y.repeat(self.size), reduction="none")
        counts = {
            "seen": torch.tensor(n),
            "wrong": wrong,
            "loss": losses.view(self.size, n).double().sum(1),
        }
        return {**counts, "logits": logits} if self.gives_logits else counts

    def predict_logits(
        self, x: Tensor, *purpose: str | int, pictures: Tensor | None = None
    ) -> Tensor:
        """Map (n, C, H, W) images to (R, n, K) logits.

        Args:
            x: the images.
            purpose: names the batch, on which random predictions depend.
            pictures: (n,) their numbers, as of :class:`~dgbench.batches.EvalBatch`.
        """
        n, like = len(x), x.new_empty((), dtype=self.runs[0].networks.dtype)
        drawn, alone = [run.draws.for_prediction(n, like, *purpose) for run in self.runs], {}
        random = {name: torch.stack([numbers[name] for numbers in drawn]) for name in drawn[0]}
        size = n if self.algorithm.group_size(self.algorithm.values) else self.images_at_once(x)
        # of what one call of ``predict`` gets
        rows = [slice(first, first + size) for first in range(0, n, size)]
        if pictures is not None and type(self.algorithm).per_image is not Algorithm.per_image:
            per_image = partial(self.predicted, self.algorithm.per_image, random={}, per_image={})
            alone = {"per_image": self._pictures.of(pictures, x, per_image)}
        parts = []
        for chunk in rows:
            inputs = (
                {name: values[:, chunk] for name, values in tensors.items()}
                for tensors in (random, alone)
            )
            parts.append(self.predicted(self.algorithm.predict, x[chunk], *inputs))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    @abstractmethod
    def predicted(
        self,
        function: Callable[[Prediction], Tensor],
        x: Tensor,
        random: Tensors,
        per_image: Tensors,
    ) -> Tensor:
        """Call a function of the algorithm, ``predict`` or ``per_image``, with every run.

        Args:
            function: (n, C, H, W) -> (n, ...).
            x: (n, C, H, W).
            random: (R, n, ...) random inputs.
            per_image: (R, n, ...) ``per_image``, where it was computed before.

        Returns:
            (R, n, ...)
        """

    def images_at_once(self, x: Tensor) -> int:
        """Compute how many images like those of ``x`` to predict at once, so that no layer puts out
        too much.
        """
        channels, *sides = x.shape[1:]
        layers = self.runs[0].activations((channels + self.algorithm.extra_channels, *sides))
        return images_at_once(layers, x.device)


def survey(module: PredictingModule, due: Sequence[int], step: int) -> None:
    """Pass over the training images of some runs and store what their algorithm makes of them in
    their memory.

    Weights, seed and step determine the result, so resuming needs nothing else to be saved.

    Args:
        module: of the runs; its networks are in training mode before and after.
        due: numbers of the runs.
        step: the optimizer step that follows.

    Raises:
        ConfigError: the module was given no training images.
    """
    if module.training_images is None:
        raise ConfigError(
            f"{type(module.algorithm).__name__} looks at all training images before some steps; "
            "give the module's training_images a function that yields them"
        )
    for i in due:
        run = module.runs[i]
        networks, hp, state = module.evaluated(i)
        rows: list[Any] = []
        with torch.no_grad(), half_for_networks(networks, module.device) as called:
            total = run.algorithm.sizes.n_trained_on or None
            with phase(
                f"{type(run.algorithm).__name__} looks at its training images", total, "images"
            ) as progress:
                for images in module.training_images(i):
                    outputs = run.algorithm.survey(Prediction(called, images.x, hp, state, {}))
                    rows.append((outputs, images.y, images.env, images.index))
                    progress.advance(len(images.y))
        outputs, y, env, index = (torch.cat(column) for column in zip(*rows, strict=True))
        rng = np.random.default_rng(derive(run.draws.seed, "survey", step))
        module.remember(i, run.algorithm.digest(Surveyed(outputs, y, env, index, state, step, rng)))
    module.runs[0].networks.train()


@contextmanager
def half_for_networks(networks: AnyNetworks, device: torch.device) -> Iterator[AnyNetworks]:
    """Restrict autocast, where it is on (as in Lightning's mixed precision), to the networks.

    Penalties are differences of nearly equal numbers, which half precision rounds away: the
    distances of MMD would be noise, the quantiles of RSC would be shared by many features. So
    everything that an algorithm computes of what its networks put out is float32, and so is what is
    differentiated inside the context, but for the networks.

    Yields:
        the networks as they are to be called.
    """
    kind = device.type
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        yield networks
        return
    dtype = torch.get_autocast_dtype(kind)
    with torch.autocast(kind, enabled=False):
        yield networks.in_half_precision(dtype)


def activations(featurizer: nn.Module, image: tuple[int, ...]) -> list[int]:
    """Count the numbers that each layer puts out for one image of shape ``image``, in order of
    computation.
    """
    counted: list[int] = []
    leaves = [layer for layer in featurizer.modules() if not list(layer.children())]
    hooks = [
        layer.register_forward_hook(lambda _, __, out: counted.append(out.numel()))
        for layer in leaves
    ]
    training = [layer for layer in featurizer.modules() if layer.training]
    featurizer.eval()  # one image has no batch statistics, and must leave none
    like = example_of(featurizer)
    with torch.no_grad():
        featurizer(torch.zeros(1, *image, dtype=like.dtype, device=like.device))
    for layer in training:
        layer.training = True
    for hook in hooks:
        hook.remove()
    return counted


def images_at_once(layers: list[int], device: torch.device) -> int:
    """Compute how many images to score at once, at least 1, from the numbers that each layer puts
    out for one.
    """
    bound = CPU_BYTES if device.type == "cpu" else DEVICE_BYTES
    return max(1, bound // (4 * max(layers, default=1)))

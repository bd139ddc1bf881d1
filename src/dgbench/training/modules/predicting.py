"""Predict with R runs of one algorithm, count errors, and survey the training images.

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
BLOCK_STEPS = 64
# the same if one step takes more than so many numbers, so that few are kept
SHORT_BLOCK_STEPS = 4
MANY_NUMBERS = 2**19


class InputDraws:
    """Draws the random inputs that an algorithm declares."""

    def __init__(self, algorithm: Algorithm, seed: int) -> None:
        self.algorithm = algorithm
        self.seed = derive(seed, "noise")
        self._lengths: dict[tuple[int, ...], int] = {}  # steps of a block, by minibatch sizes
        # of each micro-batch: the block drawn last
        self._blocks: dict[int, tuple[tuple[object, ...], Tensors]] = {}

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
        if part not in self._blocks or self._blocks[part][0] != key:
            entropy = [self.seed, block, part] if part else [self.seed, block]
            rng = np.random.default_rng(entropy)
            drawn = draw(self.algorithm.random_inputs(sizes), rng, length)
            self._blocks[part] = (key, as_tensors(drawn, like))
        _, tensors = self._blocks[part]
        return {name: values[offset] for name, values in tensors.items()}

    def _length(self, sizes: tuple[int, ...]) -> int:
        """Choose the number of steps in a block of random inputs.

        It is smaller if each step draws many numbers.
        """
        if sizes not in self._lengths:
            inputs = self.algorithm.random_inputs(sizes).values()
            numbers = sum(math.prod(declared.shape) for declared in inputs)
            is_short = numbers > MANY_NUMBERS
            self._lengths[sizes] = SHORT_BLOCK_STEPS if is_short else BLOCK_STEPS
        return self._lengths[sizes]

    def for_prediction(self, n: int, like: Tensor, *purpose: str | int) -> Tensors:
        """Draw the random inputs of a prediction on ``n`` images.

        ``purpose`` names the batch of images.
        """
        rng = np.random.default_rng(derive(self.seed, "score", *purpose))
        drawn = draw(self.algorithm.prediction_inputs(n), rng, 1)
        return {name: values[0] for name, values in as_tensors(drawn, like).items()}


def as_tensors(arrays: Mapping[str, np.ndarray], like: Tensor) -> dict[str, Tensor]:
    """Convert arrays to tensors on the device of ``like``, and floating-point ones to its dtype."""
    tensors = {}
    for name, array in arrays.items():
        dtype = like.dtype if array.dtype.kind == "f" else None
        tensors[name] = torch.as_tensor(array, dtype=dtype, device=like.device)
    return tensors


class Pictures:
    """Keeps what predictions need of each picture alone.

    It is computed when a picture first appears in an evaluation.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop what was computed, and free its memory."""
        self._known = torch.zeros(0, dtype=torch.bool)  # by number
        self._values = torch.zeros(0)  # (R, numbers, ...)

    def of(self, pictures: Tensor, x: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Look up the (R, n, ...) values of the pictures ``x``, and compute unknown ones.

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
                self._values = grown
                self._known = is_known
            self._values[:, pictures[new].to(x.device)] = values
            self._known[pictures] = True
        return self._values[:, pictures.to(x.device)]


class OneRun(Protocol):
    """A single run: :class:`~dgbench.training.modules.single.SteppedRun`."""

    algorithm: Algorithm
    networks: Networks
    draws: InputDraws
    steps_done: int

    def activations(self, image: tuple[int, ...]) -> list[int]:
        """Count the numbers that each layer of the featurizer puts out for one image."""

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
        #: whether errors are counted by class too
        self.counts_classes = False
        #: the training images of each run, for algorithms with surveys; not part of a state
        self.training_images: TrainingImagesOf | None = None
        self._pictures = Pictures()

    @property
    @abstractmethod
    def runs(self) -> Sequence[OneRun]:
        """The R runs."""

    @abstractmethod
    def evaluated(self, i: int) -> tuple[AnyNetworks, Hyperparameters, Tensors]:
        """Return networks in evaluation mode, hyperparameters and memory of run ``i``.

        All are as they are now.
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
        """Drop what was computed of each picture.

        Weights are about to change, or an evaluation ended.
        """
        self._pictures.forget()

    def count_errors(self, images: EvalBatch) -> dict[str, Tensor]:
        """Count the errors of every run on one batch, and sum its loss.

        Returns:
            ``seen``, 0-dimensional; ``wrong`` (R,); ``loss`` (R,) float64, the summed cross
            entropy; if ``counts_classes`` is set, ``class_seen`` (K,) and ``class_wrong`` (R, K);
            if ``gives_logits`` is set, ``logits`` (R, n, K).
        """
        n = len(images.y)
        logits = self.predict_logits(images.x, images.name, images.index, pictures=images.pictures)
        mistaken = logits.argmax(2) != images.y
        losses = F.cross_entropy(logits.flatten(0, 1), images.y.repeat(self.size), reduction="none")
        counts = {
            "seen": torch.tensor(n),
            "wrong": mistaken.sum(1),
            "loss": losses.view(self.size, n).double().sum(1),
        }
        if self.counts_classes:
            of_class = F.one_hot(images.y, logits.shape[2]).double()
            counts["class_seen"] = of_class.sum(0)
            counts["class_wrong"] = mistaken.double() @ of_class
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
        n = len(x)
        like = x.new_empty((), dtype=self.runs[0].networks.dtype)
        random = stacked_by_name([run.draws.for_prediction(n, like, *purpose) for run in self.runs])
        alone = {}
        if pictures is not None and type(self.algorithm).per_image is not Algorithm.per_image:
            compute = partial(self.predicted, self.algorithm.per_image, random={}, per_image={})
            alone["per_image"] = self._pictures.of(pictures, x, compute)
        size = n if self.algorithm.group_size(self.algorithm.values) else self.images_at_once(x)
        parts = []
        for first in range(0, n, size):
            rows = slice(first, first + size)  # of what one call of ``predict`` gets
            numbers = {name: values[:, rows] for name, values in random.items()}
            known = {name: values[:, rows] for name, values in alone.items()}
            parts.append(self.predicted(self.algorithm.predict, x[rows], numbers, known))
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
            per_image: (R, n, ...) ``per_image``, if it was computed before.

        Returns:
            (R, n, ...)
        """

    def images_at_once(self, x: Tensor) -> int:
        """Compute how many images like those of ``x`` to predict at once.

        No layer may put out too much.
        """
        channels, *sides = x.shape[1:]
        layers = self.runs[0].activations((channels + self.algorithm.extra_channels, *sides))
        return images_at_once(layers, x.device)


def stacked_by_name(runs: Sequence[Tensors]) -> dict[str, Tensor]:
    """Stack tensors of the same names along a new first axis, that of the runs."""
    stacked = {}
    for name in runs[0]:
        stacked[name] = torch.stack([tensors[name] for tensors in runs])
    return stacked


def survey(module: PredictingModule, due: Sequence[int], step: int) -> None:
    """Let the algorithm of some runs look at all training images, and store what it makes of them.

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
            title = f"{type(run.algorithm).__name__} looks at its training images"
            total = run.algorithm.sizes.n_trained_on or None
            with phase(title, total, "images") as progress:
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
    """Restrict autocast, if it is on (as in Lightning's mixed precision), to the networks.

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
    """Count the numbers that each layer puts out for one image of shape ``image``.

    They are in order of computation.
    """
    counted: list[int] = []

    def note(_: nn.Module, __: Any, out: Tensor) -> None:
        counted.append(out.numel())

    leaves = [layer for layer in featurizer.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(note) for layer in leaves]
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
    """Compute how many images to score at once, at least 1.

    Args:
        layers: numbers that each layer puts out for one image.
        device: that computes.
    """
    bound = CPU_BYTES if device.type == "cpu" else DEVICE_BYTES
    return max(1, bound // (4 * max(layers, default=1)))

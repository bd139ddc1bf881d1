"""What an objective is given and what it returns, and the risks that most objectives start from.

An objective draws nothing: it names the random inputs that it needs, and whoever trains it draws
them from a generator of its own, in the order in which they are declared, or puts other numbers in
their place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.batches import EnvBatch, Tensors
from dgbench.containers import AnyNetworks
from dgbench.errors import ConfigError


class Hyperparameters(dict[str, Tensor]):
    """0-dimensional tensors by name.

    Write ``hp.vrex_lambda``, or ``hp["lambda"]`` if a name is no identifier. A name that ``dict``
    itself has is reached by ``hp["values"]`` only.
    """

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"there is no hyperparameter {name}; known: {known}") from None


@dataclass(frozen=True)
class Outcome:
    """What an objective returns for one update of one step."""

    loss: Tensor  #: scalar to differentiate with respect to the parameters of the update's groups
    #: detached scalars worth watching, which loggers show; never used for selection. Without a
    #: logger they are dropped, so they must come out of what is computed anyway.
    logs: Tensors = field(default_factory=dict)
    #: the algorithm's new state; keys left out keep their value
    state: Tensors = field(default_factory=dict)
    #: gradients by parameter name, for methods whose update is no gradient of one scalar; replaces
    #: the differentiation of ``loss``
    grads: Tensors | None = None


def penalized(
    risk: Tensor, weight: Tensor, penalty: Tensor, state: Tensors | None = None
) -> Outcome:
    """Add a weighted penalty to a risk; both weight and penalty are logged."""
    logs = {"penalty": penalty.detach(), "penalty_weight": weight}
    return Outcome(risk + weight * penalty, logs, state or {})


@dataclass(frozen=True)
class Step:
    """Everything that an objective sees of one optimizer step of one run."""

    #: ``networks.featurizer(x)``, ``networks.classifier(z)`` and what else the algorithm asked for
    networks: AnyNetworks
    batch: EnvBatch  #: the minibatches of all training environments
    hp: Hyperparameters  #: hyperparameters that are not static
    state: Tensors  #: the algorithm's own memory
    random: Tensors  #: the random inputs that the algorithm declared
    step: Tensor  #: 0-dimensional int64, counts from 0

    @property
    def x(self) -> Tensor:
        """(N, C, H, W) images."""
        return self.batch.x

    @property
    def y(self) -> Tensor:
        """(N,) int64 labels."""
        return self.batch.y

    @property
    def sizes(self) -> tuple[int, ...]:
        """Minibatch size of each of the E environments."""
        return self.batch.sizes

    @property
    def env(self) -> Tensor:
        """(N,) position of each row's environment among those of the step."""
        return self.batch.env

    @property
    def drawn(self) -> Tensor | None:
        """(E,) numbers of the step's environments among all that are trained on.

        None if the step has all of these.
        """
        return self.batch.drawn

    @property
    def index(self) -> Tensor:
        """(N,) number of each row's training image, below ``sizes.n_images``.

        Raises:
            ConfigError: the images have no numbers, as in a trainer with loaders of one's own.
        """
        if self.batch.index is None:
            raise ConfigError(
                "the algorithm keeps something for each training image; give EnvBatch an index"
            )
        return self.batch.index

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Cut a tensor of N rows into one tensor per environment."""
        return self.batch.split(values)

    def features(self) -> Tensor:
        """Compute (N, m) features in one forward pass over all rows."""
        return self.networks.featurizer(self.x)

    def logits(self) -> Tensor:
        """Compute (N, K) logits in one forward pass over all rows."""
        return self.networks.logits(self.x)

    def separate_features(self) -> Tensor:
        """Compute (N, m) features as of one forward pass per environment.

        One pass over all rows has the same result and is made instead, unless an unfrozen BatchNorm
        looks at the whole minibatch.
        """
        if self.networks.mixes_rows("featurizer"):
            return torch.cat([self.networks.featurizer(x) for x in self.split(self.x)])
        return self.features()

    def separate_logits(self) -> Tensor:
        """Compute (N, K) logits as of one forward pass per environment.

        See :meth:`separate_features`.
        """
        return self.networks.classifier(self.separate_features())

    def risk(self, logits: Tensor) -> Tensor:
        """Average the cross entropy of (N, K) logits over all rows."""
        return F.cross_entropy(logits, self.y)

    def environment_risks(self, logits: Tensor | None = None) -> Tensor:
        """Compute R_e, the (E,) mean cross entropies in the environments.

        Args:
            logits: (N, K); by default those of :meth:`logits`.
        """
        return environment_risks(self.logits() if logits is None else logits, self.batch)


@dataclass(frozen=True)
class Prediction:
    """Everything that :meth:`Algorithm.predict` sees."""

    networks: AnyNetworks  #: in evaluation mode
    x: Tensor  #: (n, C, H, W) images
    #: as of :class:`Step`
    hp: Hyperparameters
    state: Tensors
    random: Tensors  #: the random inputs that the algorithm declared for predictions
    #: (n, ...) what :meth:`Algorithm.per_image` made of the images; None if it was not called
    per_image: Tensor | None = None


@dataclass(frozen=True)
class Surveyed:
    """All M training images of one run, in the order of environments, for a digest.

    See :meth:`Algorithm.digest`.
    """

    rows: Tensor  #: (M, ...) what :meth:`Algorithm.survey` made of them
    y: Tensor  #: (M,) labels
    env: Tensor  #: (M,) positions of their environments among the training environments
    index: Tensor  #: (M,) numbers of the images
    state: Tensors  #: the algorithm's own memory
    step: int  #: number of the step that follows
    #: for whatever is drawn; a function of the run's seed and the step alone
    rng: np.random.Generator


UpdateFunction = Callable[[Step], Outcome]


def environment_risks(logits: Tensor, batch: EnvBatch) -> Tensor:
    """Compute R_e, the (E,) mean cross entropies of (N, K) logits within the environments."""
    return batch.mean_per_env(F.cross_entropy(logits, batch.y, reduction="none"))


def invariance_penalty(logits: Tensor, batch: EnvBatch) -> Tensor:
    """Compute IRMv1's penalty of (N, K) logits, mean_e G_e(even rows) * G_e(odd rows).

    G is the derivative of the risk with respect to a factor on the logits, taken at 1: the mean of
    <softmax(l) - onehot(y), l>. The product of the halves is an unbiased estimate of the squared
    gradient and may be negative.
    """
    # <onehot(y), l> by gathering: one_hot cannot be mapped by vmap
    slopes = (logits.softmax(1) * logits).sum(1) - logits.gather(1, batch.y[:, None]).squeeze(1)
    halves = [(part[0::2].mean(), part[1::2].mean()) for part in batch.split(slopes)]
    return torch.stack([even * odd for even, odd in halves]).mean()


Count = TypeVar("Count", int, Tensor)


def epoch_of(step: Count, epochs: int, n_steps: int) -> Count:
    """Compute the number, from 0, of the epoch that a step belongs to.

    ``n_steps`` steps are ``epochs`` epochs.
    """
    return step * epochs // max(n_steps, 1)


def dropped(step: int, share: float, n_steps: int) -> float:
    """Return the learning rate's factor: 0.1 after this share of the steps, else 1.

    With a share of 1 it is always 1.
    """
    return 0.1 if share < 1 and step >= share * n_steps else 1.0


@dataclass(frozen=True)
class RandomInput(ABC):
    """An array of random numbers; a subclass says how they are distributed."""

    shape: tuple[int, ...]  #: of one step, or of one prediction
    description: str = ""  #: what the numbers are for

    @abstractmethod
    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        """Make (steps, \\*shape) independent draws."""


RandomInputs = Mapping[str, RandomInput]


@dataclass(frozen=True)
class Uniform(RandomInput):
    """U(0, 1)."""

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return rng.random((steps, *self.shape))


@dataclass(frozen=True)
class Integers(RandomInput):
    """Integers from 0 to b - 1, b by the position along the last axis."""

    below: tuple[int, ...] = ()  #: the b's, as many as the last axis is long

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return rng.integers(0, self.below, (steps, *self.shape))


@dataclass(frozen=True)
class Normal(RandomInput):
    """N(0, 1), drawn in single precision."""

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return rng.standard_normal((steps, *self.shape), dtype=np.float32)


@dataclass(frozen=True)
class Beta(RandomInput):
    """Beta(alpha, alpha)."""

    alpha: float = 1.0

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        return rng.beta(self.alpha, self.alpha, (steps, *self.shape))


@dataclass(frozen=True)
class Bernoulli(RandomInput):
    """True with probability ``p``."""

    p: float = 0.5

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        drawn: np.ndarray = rng.random((steps, *self.shape)) <= self.p
        return drawn


@dataclass(frozen=True)
class Permutation(RandomInput):
    """Permutations of 0, ..., n-1 along the last axis, whose length is n."""

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        shape = (steps, *self.shape)
        return rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)


@dataclass(frozen=True)
class CrossPermutation(RandomInput):
    """Partners from the other half of the last axis.

    With 2 n the length of that axis, each half is a permutation of the other.
    """

    def draw(self, rng: np.random.Generator, steps: int) -> np.ndarray:
        half = self.shape[-1] // 2
        one = Permutation((*self.shape[:-1], half))
        return np.concatenate([start + one.draw(rng, steps) for start in (half, 0)], -1)


def draw(inputs: RandomInputs, rng: np.random.Generator, steps: int) -> dict[str, np.ndarray]:
    """Draw all inputs in the order of their declaration; axis 0 of each array is the step."""
    return {name: declared.draw(rng, steps) for name, declared in inputs.items()}

"""What the layers hand to each other: batches, networks, and what an objective returns.

Shape legend (used everywhere): R members, E training environments, B images per environment and step,
N = sum of the environments' minibatch sizes, K classes, m features, C x H x W image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

Tensors = Mapping[str, Tensor]


@dataclass  # not frozen: Lightning's precision plugins rebuild batches field by field
class EnvBatch:
    """One minibatch from every training environment, in the order of the environments.

    Args:
        x: (N, C, H, W) images.
        y: (N,) int64 labels.
        sizes: minibatch size of each of the E environments; their sum is N.
    """

    x: Tensor
    y: Tensor
    sizes: tuple[int, ...]

    @cached_property
    def env(self) -> Tensor:
        """(N,) position of each row's environment among the training environments."""
        # no repeat_interleave: the length of its result would have to be read back from the device
        return torch.cat([torch.full((size,), e, device=self.x.device) for e, size in enumerate(self.sizes)])

    def split(self, values: Tensor) -> tuple[Tensor, ...]:
        """Cut a tensor of N rows into one tensor per environment."""
        return torch.split(values, list(self.sizes))

    def mean_per_env(self, values: Tensor) -> Tensor:
        """(N,) values to their (E,) means within each environment."""
        if len(set(self.sizes)) == 1:
            return values.view(len(self.sizes), -1).mean(1)
        return torch.stack([part.mean() for part in self.split(values)])


@dataclass(frozen=True)
class Outcome:
    """What an objective returns for one phase of one step.

    Args:
        loss: scalar to differentiate with respect to the parameters of the phase's players.
        logs: scalars worth watching; never used for selection.
        state: the algorithm's new state; keys left out keep their value.
        grads: gradients by parameter name, for methods whose update is no gradient of one scalar; replaces
            the differentiation of ``loss``.
    """

    loss: Tensor
    logs: Tensors = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)
    grads: Tensors | None = None


@dataclass(frozen=True)
class Sizes:
    """The numbers that decide the shapes of an algorithm's networks."""

    n_features: int
    n_classes: int
    n_envs: int  #: training environments
    image: tuple[int, ...]  #: C, H, W; the shape of features where a frozen part of the network was computed before


@dataclass(frozen=True)
class LinearSpec:
    """One linear layer with bias, (n, n_in) -> (n, n_out).

    ``xavier_gain`` asks for Xavier-uniform weights and zero bias instead of the framework's initialization.
    """

    n_in: int
    n_out: int
    xavier_gain: float | None = None


@dataclass(frozen=True)
class MLPSpec:
    """DomainBed's multilayer perceptron, (n, n_in) -> (n, n_out); dropout comes before each ReLU."""

    n_in: int
    n_out: int
    width: int
    depth: int
    dropout: float = 0.0


@dataclass(frozen=True)
class EmbeddingSpec:
    """A table of ``n`` learned vectors of length ``size``, drawn from N(0, 1)."""

    n: int
    size: int


@dataclass(frozen=True)
class ContextSpec:
    """ARM's context network: (n, channels, H, W) in G groups of rows -> (G, 1, H, W)."""

    channels: int


NetworkSpec = LinearSpec | MLPSpec | EmbeddingSpec | ContextSpec


class _Callables:
    """Named networks that an objective calls: ``nets.featurizer(x)``, ``nets.classifier(z)``, ..."""

    def logits(self, x: Tensor) -> Tensor:
        """(n, C, H, W) -> (n, K), the classifier on the features."""
        return self.classifier(self.featurizer(x))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Tensor]: ...


class Networks(_Callables, nn.ModuleDict):  # type: ignore[misc]  # two __getattr__, for the type checker only
    """The networks of one member: ``featurizer``, ``classifier`` and what else the algorithm declares.

    What is frozen is no parameter any more, neither for an optimizer nor for an objective, and computes as in
    evaluation whatever the mode: BatchNorm uses its running statistics and leaves them, dropout is off.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__(modules)  # type: ignore[arg-type]
        self._frozen: list[nn.Module] = []

    def freeze(self, modules: Iterable[nn.Module], parameters: Iterable[nn.Parameter]) -> None:
        """Freeze parameters, and keep modules in evaluation mode from now on."""
        for parameter in parameters:
            parameter.requires_grad_(False)
        self._frozen.extend(modules)
        self.train(self.training)

    def train(self, mode: bool = True) -> Networks:
        super().train(mode)
        for module in self._frozen:
            module.eval()
        return self

    def params(self, *names: str) -> dict[str, Tensor]:
        """Parameters that train of the named networks (of all without names), keyed ``network.parameter``."""
        return {key: value for key, value in self._all(*names).items() if value.requires_grad}

    def constants(self) -> dict[str, Tensor]:
        """Frozen parameters, keyed ``network.parameter``."""
        return {key: value for key, value in self._all().items() if not value.requires_grad}

    def _all(self, *names: str) -> dict[str, Tensor]:
        return {
            f"{name}.{key}": value
            for name in names or self.keys()
            for key, value in self[name].named_parameters(remove_duplicate=False)
        }

    def mixes_rows(self, name: str) -> bool:
        """Whether what the named network makes of an image depends on the others: BatchNorm on minibatch statistics."""
        return any(isinstance(layer, _BatchNorm) and layer.training for layer in self[name].modules())

    def statistics(self) -> dict[str, Tensor]:
        """Buffers of all networks (running statistics), keyed ``network.buffer``."""
        return dict(self.named_buffers())

    def bind(self, params: Tensors) -> BoundNetworks:
        """The same networks with some or all parameters replaced; differentiable in ``params``."""
        return BoundNetworks(self, {**self._all(), **dict(self.named_buffers()), **params})


class BoundNetworks(_Callables):
    """Networks as pure functions of explicit tensors.

    Args:
        modules: the networks; only their code is used.
        tensors: every parameter and buffer, keyed ``network.tensor``.
    """

    def __init__(self, modules: Networks, tensors: Tensors) -> None:
        self._modules = modules
        self._tensors = tensors

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        if name.startswith("_") or name not in self._modules:
            raise AttributeError(name)
        prefix = f"{name}."
        own = {key[len(prefix) :]: value for key, value in self._tensors.items() if key.startswith(prefix)}
        return lambda *args, **kwargs: functional_call(self._modules[name], own, args, kwargs)

    def params(self, *names: str) -> dict[str, Tensor]:
        """Parameters that train (no buffers) of the named networks, keyed ``network.parameter``."""
        return {key: self._tensors[key] for key in self._modules.params(*names)}

    def mixes_rows(self, name: str) -> bool:
        """Whether what the named network makes of an image depends on the others."""
        return self._modules.mixes_rows(name)

    def statistics(self) -> dict[str, Tensor]:
        """Buffers of all networks (running statistics), keyed ``network.buffer``."""
        return {key: self._tensors[key] for key in self._modules.statistics()}

    def bind(self, params: Tensors) -> BoundNetworks:
        """The same networks with some or all tensors replaced."""
        return BoundNetworks(self._modules, {**self._tensors, **params})


@dataclass(frozen=True)
class StyleMix:
    """How one stage of a featurizer mixes feature statistics between the n images of a forward pass.

    A featurizer that can do so has an attribute ``style_stages`` (the numbers of its stages) and takes
    ``forward(x, styles={stage: StyleMix})``.

    Args:
        active: 0-dimensional bool; False leaves the features as they are.
        weight: (n,) weight of an image's own statistics.
        partner: (n,) row whose statistics get the rest.
    """

    active: Tensor
    weight: Tensor
    partner: Tensor


class Buffers(nn.Module):
    """Tensors by name that move with the module, are saved with it, and can be re-assigned."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self.assign(tensors)

    def assign(self, tensors: Tensors) -> None:
        """Set some of the tensors; the rest keep their value."""
        for name, value in tensors.items():
            self.register_buffer(name, value.detach())

    def tensors(self) -> Tensors:
        """All tensors by name."""
        return {name: value for name, value in self._buffers.items() if value is not None}


@dataclass(frozen=True)
class Player:
    """Networks that are updated together by one Adam optimizer.

    Args:
        networks: names of the networks it owns.
        lr, weight_decay: names of the hyperparameters that hold its learning rate and L2-coupled weight decay.
        beta1: name of the hyperparameter that holds Adam's beta1, or the number itself.
        beta2: Adam's beta2.
    """

    networks: tuple[str, ...]
    lr: str = "lr"
    weight_decay: str = "weight_decay"
    beta1: str | float = 0.9
    beta2: float = 0.999


@dataclass(frozen=True)
class Phase:
    """One objective and the players that step on its gradient; a step runs its phases in order."""

    objective: Callable[..., Outcome]
    players: tuple[str, ...]


@dataclass
class ScoreBatch:
    """Images to score, of one pass.

    Args:
        x: (n, C, H, W) images.
        y: (n,) int64 labels.
        name: the pass they belong to.
        index: number of the batch within the pass.
    """

    x: Tensor
    y: Tensor
    name: str
    index: int


@dataclass(frozen=True)
class Score:
    """The error of one subset of one environment as a mixture of scoring passes.

    Args:
        env: name of the environment.
        subset: ``train``, ``val`` or ``test``.
        mixture: weight of each pass; weights sum to 1. A sampled error is one pass of weight 1; an exact error
            mixes the passes with the probabilities that define the environment.
        held_out: whether the member never trained on what is scored; None where that is so of the environment as a
            whole, or not, and the member's identity tells.
    """

    env: str
    subset: str
    mixture: Mapping[str, float]
    held_out: bool | None = None

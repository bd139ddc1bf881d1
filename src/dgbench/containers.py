"""Containers of networks: modules, functions of explicit tensors, and tensors that move along."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from dgbench.batches import Tensors


class _Callables:
    """Named networks that an objective calls: ``nets.featurizer(x)``, ``nets.classifier(z)``."""

    def logits(self, x: Tensor) -> Tensor:
        """Map (n, C, H, W) images to (n, K) logits: the classifier on the features."""
        return self.classifier(self.featurizer(x))

    def style_stages(self) -> tuple[int, ...]:
        """List the numbers of the featurizer's stages after which styles can be mixed, if any."""
        return tuple(getattr(self._modules["featurizer"], "style_stages", ()))

    def one_image_size(self) -> bool:
        """Return whether the featurizer takes only images of the size that it was made for."""
        return bool(getattr(self._modules["featurizer"], "one_image_size", False))

    def mixes_rows(self, name: str) -> bool:
        """Return whether a named network's output for an image depends on others.

        It does with BatchNorm on minibatch statistics.
        """
        layers = self._modules[name].modules()
        return any(isinstance(layer, _BatchNorm) and layer.training for layer in layers)

    if TYPE_CHECKING:
        _modules: Any

        def __getattr__(self, name: str) -> Callable[..., Tensor]: ...


# two __getattr__, for the type checker only
class Networks(_Callables, nn.ModuleDict):  # type: ignore[misc]
    """The networks of one run: ``featurizer``, ``classifier`` and what else the algorithm declares.

    What is frozen is no parameter any more, neither for an optimizer nor for an objective, and
    computes as in evaluation whatever the mode: BatchNorm uses its running statistics and leaves
    them, dropout is off.
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
        """Collect trainable parameters of the named networks, keyed ``network.parameter``.

        Without names they are those of all networks.
        """
        return {key: value for key, value in self._all(*names).items() if value.requires_grad}

    def constants(self) -> dict[str, Tensor]:
        """Collect the frozen parameters, keyed ``network.parameter``."""
        return {key: value for key, value in self._all().items() if not value.requires_grad}

    def _all(self, *names: str) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for name in names or self.keys():
            for key, value in self[name].named_parameters(remove_duplicate=False):
                tensors[f"{name}.{key}"] = value
        return tensors

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the parameters; all have the same."""
        return next(p.dtype for p in self.parameters() if p.is_floating_point())

    def statistics(self) -> dict[str, Tensor]:
        """Collect the buffers of all networks (running statistics), keyed ``network.buffer``."""
        return dict(self.named_buffers())

    def bind(self, params: Tensors) -> BoundNetworks:
        """Bind the networks to new values of some or all parameters and buffers.

        The result is differentiable in ``params``.
        """
        return BoundNetworks(self, {**self._all(), **dict(self.named_buffers()), **params})

    def in_half_precision(self, dtype: torch.dtype) -> BoundNetworks:
        """Return the same networks, computing in float16 or bfloat16 with outputs in float32."""
        return self.bind({}).in_half_precision(dtype)


class BoundNetworks(_Callables):
    """Networks as pure functions of explicit tensors.

    Args:
        modules: the networks; only their code is used.
        tensors: every parameter and buffer, keyed ``network.tensor``.
        half: float16 or bfloat16, if the networks compute in it under autocast; what they put out
            is float32 again.
    """

    def __init__(
        self, modules: Networks, tensors: Tensors, half: torch.dtype | None = None
    ) -> None:
        self._modules = modules
        self._tensors = tensors
        self._half = half

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        if name.startswith("_") or name not in self._modules:
            raise AttributeError(name)
        prefix = f"{name}."
        tensors = {}
        for key, value in self._tensors.items():
            if key.startswith(prefix):
                tensors[key.removeprefix(prefix)] = value

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._half is None:
                return functional_call(self._modules[name], tensors, args, kwargs)
            device_type = next(iter(self._tensors.values())).device.type
            # a cache would keep weights over a step
            with torch.autocast(device_type, self._half, cache_enabled=False):
                return _single(functional_call(self._modules[name], tensors, args, kwargs))

        return call

    def params(self, *names: str) -> dict[str, Tensor]:
        """Collect trainable parameters of the named networks, keyed ``network.parameter``."""
        return {key: self._tensors[key] for key in self._modules.params(*names)}

    def statistics(self) -> dict[str, Tensor]:
        """Collect the buffers of all networks (running statistics), keyed ``network.buffer``."""
        return {key: self._tensors[key] for key in self._modules.statistics()}

    def bind(self, params: Tensors) -> BoundNetworks:
        """Bind the same networks to new values of some or all tensors."""
        return BoundNetworks(self._modules, {**self._tensors, **params}, self._half)

    def in_half_precision(self, dtype: torch.dtype) -> BoundNetworks:
        """Return the same networks, computing in float16 or bfloat16 with outputs in float32."""
        return BoundNetworks(self._modules, self._tensors, dtype)


def _single(output: Any) -> Any:
    """Cast a network's output, a tensor or several, to float32 if it is in half precision."""
    if isinstance(output, Tensor):
        return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output
    if isinstance(output, (list, tuple)):
        return type(output)(map(_single, output))
    return output


AnyNetworks = Networks | BoundNetworks


def example_of(module: nn.Module) -> Tensor:
    """Find a tensor of the type and on the device of a module's floats.

    It is a parameter, a buffer, or an empty one.
    """
    tensors = itertools.chain(module.parameters(), module.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))


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
        """Collect all tensors by name."""
        return {name: value for name, value in self._buffers.items() if value is not None}


@torch.no_grad()
def renew_statistics(
    model: nn.Module, forward: Callable[[Tensor], object], images: Iterable[Tensor]
) -> None:
    """Replace running means and variances by their averages over the batches.

    A frozen layer (one that ``model.train()`` leaves in evaluation mode) keeps its statistics; if
    all are, nothing is computed.

    Args:
        model: the networks; left in the mode in which they came.
        forward: what is computed on each batch.
        images: batches, (n, C, H, W) each.
    """
    was_training = model.training
    model.train()
    layers = []
    for layer in model.modules():
        if isinstance(layer, _BatchNorm) and layer.training and layer.track_running_stats:
            layers.append(layer)
    momenta = [layer.momentum for layer in layers]
    if layers:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # cumulative average
        for x in images:
            forward(x)
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
    model.train(was_training)

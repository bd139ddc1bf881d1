"""Low-rank adaptation (LoRA, Hu et al., 2022): a layer learns W + (alpha / r) B A, W stands still.

A layer of (out, in, ...) weights gets ``low_rank_down``, A, of (r, in, ...), and ``low_rank_up``,
B, of (out, r, ...). A starts as Kaiming-uniform with a = sqrt(5), B at zero, so that the network
starts as it was (as in peft 0.21, whose layers these equal). The weights keep their names, and a
layer keeps its identity: its class alone changes.

In training mode the two small layers are computed beside the large one. In evaluation mode the
weights are merged first, by the arithmetic of :func:`merged`, so a model that is evaluated while it
trains and one that is loaded later compute the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.errors import ConfigError
from dgbench.validation import some_of

DOWN = "low_rank_down"
UP = "low_rank_up"
#: queries, keys, values and output of timm's attention
ATTENTION = ("*attn.qkv", "*attn.[qkv]", "*attn.[qkv]_proj", "*attn.kv", "*attn.proj")


class LowRankLinear(nn.Linear):
    """A linear layer with a low-rank part."""

    low_rank_down: nn.Parameter  #: (r, in)
    low_rank_up: nn.Parameter  #: (out, r)
    scale: float  #: alpha / r

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            weight = merged(self.weight, self.low_rank_down, self.low_rank_up, self.scale)
            return F.linear(x, weight, self.bias)
        small = F.linear(x, self.low_rank_down)
        large: Tensor = super().forward(x)
        return large + self.scale * F.linear(small, self.low_rank_up)


class LowRankConv2d(nn.Conv2d):
    """A convolution with a low-rank part: one to r channels, then one of 1 x 1 pixel."""

    low_rank_down: nn.Parameter  #: (r, in, height, width)
    low_rank_up: nn.Parameter  #: (out, r, 1, 1)
    scale: float  #: alpha / r

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            weight = merged(self.weight, self.low_rank_down, self.low_rank_up, self.scale)
            whole: Tensor = self._conv_forward(x, weight, self.bias)
            return whole
        small = self._conv_forward(x, self.low_rank_down, None)
        large: Tensor = super().forward(x)
        return large + self.scale * F.conv2d(small, self.low_rank_up)


#: exactly these classes: a subclass may compute something else
LOW_RANK: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.Linear: LowRankLinear,
    nn.Conv2d: LowRankConv2d,
}


def merged(weight: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """Compute W + scale B A, in the shape of W."""
    change = scale * (up.flatten(1) @ down.flatten(1))
    return weight + change.view_as(weight)


def merged_tensors(tensors: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Merge the low-rank parts among the tensors of a network into the weights beside them.

    Args:
        tensors: by name, as in a ``state_dict``.
        scale: alpha / r.

    Returns:
        The tensors of the network as it is without low-rank parts.
    """
    plain = dict(tensors)
    for name in tensors:
        layer, _, last = name.rpartition(".")
        beside = f"{layer}.{UP}"
        if last == DOWN and beside in tensors:
            weight = plain[f"{layer}.weight"]
            plain[f"{layer}.weight"] = merged(weight, plain.pop(name), plain.pop(beside), scale)
    return plain


def layers_of(network: nn.Module) -> dict[str, nn.Module]:
    """Collect the layers that a low-rank part can be added to, by name.

    These are linear layers and convolutions that are not grouped.
    """
    layers: dict[str, nn.Module] = {}
    for name, module in network.named_modules():
        if type(module) in LOW_RANK and getattr(module, "groups", 1) == 1:
            layers[name] = module
    return layers


def targets(network: nn.Module, patterns: Sequence[str] | None) -> dict[str, nn.Module]:
    """Choose the layers that get a low-rank part, by name.

    Args:
        network: a featurizer.
        patterns: of names, as in a shell; None: queries, keys, values and output of attention, or
            in a network without attention its linear layers and convolutions of 1 x 1 pixel.

    Raises:
        ConfigError: a pattern, or the default, names no layer.
    """
    layers = layers_of(network)
    examples = some_of(list(layers)) if layers else "none"
    if patterns is None:
        chosen = _matching(layers, ATTENTION) or _pointwise(layers)
        if not chosen:
            raise ConfigError(
                "tuning=lora adapts attention, linear layers and 1 x 1 convolutions unless "
                "tuning.targets names others, and this backbone has none; name some of its layers "
                f"({examples}), e.g. tuning.targets=['*'], or set tuning=ft"
            )
        return chosen
    for pattern in patterns:
        if not _matching(layers, [pattern]):
            raise ConfigError(
                f"tuning.targets={pattern} is the name of no linear layer or ungrouped "
                f"convolution of this backbone; it has {examples}"
            )
    return _matching(layers, patterns)


def _matching(layers: Mapping[str, nn.Module], patterns: Sequence[str]) -> dict[str, nn.Module]:
    chosen = {}
    for name, layer in layers.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            chosen[name] = layer
    return chosen


def _pointwise(layers: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    chosen = {}
    for name, layer in layers.items():
        if isinstance(layer, nn.Linear) or getattr(layer, "kernel_size", None) == (1, 1):
            chosen[name] = layer
    return chosen


def add_low_rank(layers: Mapping[str, nn.Module], rank: int, alpha: float) -> list[nn.Parameter]:
    """Add a low-rank part to each of some layers, drawn from torch's global generator.

    Returns:
        The new parameters.

    Raises:
        ConfigError: the rank is above that of a layer's weights.
    """
    smallest = min(layers, key=lambda name: _full_rank(layers[name]))
    full = _full_rank(layers[smallest])
    if rank > full:
        raise ConfigError(
            f"tuning.rank={rank} is above the rank of layer {smallest}, {full}; lower it to at "
            f"most {full}, or leave that layer out of tuning.targets"
        )
    added: list[nn.Parameter] = []
    for layer in layers.values():
        added += _with_low_rank(layer, rank, alpha / rank)
    return added


def _full_rank(layer: Any) -> int:
    """Return the rank that the weights of a layer can have at most, as a matrix of (out, rest)."""
    shape: torch.Size = layer.weight.flatten(1).shape
    return min(shape)


def _with_low_rank(layer: Any, rank: int, scale: float) -> tuple[nn.Parameter, nn.Parameter]:
    weight = layer.weight
    layer.__class__ = LOW_RANK[type(layer)]
    layer.low_rank_down = nn.Parameter(weight.new_empty(rank, *weight.shape[1:]))
    layer.low_rank_up = nn.Parameter(weight.new_zeros(len(weight), rank, *[1] * (weight.dim() - 2)))
    layer.scale = scale
    nn.init.kaiming_uniform_(layer.low_rank_down, a=math.sqrt(5))
    return layer.low_rank_down, layer.low_rank_up


@torch.no_grad()
def check_reached(
    network: nn.Module, layers: Mapping[str, nn.Module], image: Sequence[int]
) -> None:
    """Refuse layers whose forward pass a network does not call.

    It reads their weights itself, and a low-rank part beside them would have no effect.

    Args:
        network: on the meta device.
        layers: those with a low-rank part, by name.
        image: shape of one image.

    Raises:
        ConfigError: with the first such layer.
    """
    reached: set[nn.Module] = set()
    hooks = []
    for layer in layers.values():
        hooks.append(layer.register_forward_pre_hook(lambda module, _: reached.add(module)))
    network.eval()
    network(torch.zeros(1, *image, device="meta"))
    for hook in hooks:
        hook.remove()
    for name, layer in layers.items():
        if layer not in reached:
            raise ConfigError(
                f"tuning=lora has no effect on layer {name}, whose weights this backbone reads "
                "itself; leave it out of tuning.targets, or set tuning=ft"
            )

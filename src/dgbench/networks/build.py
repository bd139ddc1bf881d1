"""Building a run's networks, initial weights included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.errors import ConfigError
from dgbench.modules import Networks, example_of
from dgbench.networks.heads import build_head
from dgbench.requests import FeaturizerSpec, NetworkSpec, PerChannelSpec, Sizes
from dgbench.seeding import derive

FeaturizerFactory = Callable[[tuple[int, ...]], nn.Module]


def build_networks(
    featurizer: FeaturizerFactory,
    sizes_without_features: Sizes,
    needed: Callable[[Sizes], Mapping[str, NetworkSpec]],
    extra_channels: int,
    seed: int,
) -> tuple[Networks, Sizes]:
    """The featurizer, then what the algorithm needs, in that order, from one seed.

    Args:
        featurizer: makes a module with an attribute ``n_features`` from the shape of an image.
        sizes_without_features: all but ``n_features``, which the featurizer decides.
        needed: the algorithm's networks as specifications.
        extra_channels: image channels that the algorithm adds.
        seed: base seed of the initial weights; the global generator is left as it was.

    Returns:
        The networks, and the sizes with ``n_features`` filled in.
    """
    channels, *sides = sizes_without_features.image
    image = (channels + extra_channels, *sides)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "init"))
        body = featurizer(image)
        sizes = Sizes(**{**vars(sizes_without_features), "n_features": body.n_features})
        return assembled({"featurizer": body}, needed(sizes), image, lambda: featurizer(image)), sizes


def assembled(
    own: Mapping[str, nn.Module],
    needed: Mapping[str, NetworkSpec],
    image: tuple[int, ...],
    another: Callable[[], nn.Module],
) -> Networks:
    """Networks that are there, ``featurizer`` among them, and those that an algorithm needs beside them.

    Args:
        own: networks by name.
        needed: specifications by name; those of ``own`` are left out.
        image: C, H, W of what the featurizer sees.
        another: makes one more featurizer.

    Raises:
        ConfigError: a network needs the featurizer's maps, and it has none; a copy that cannot be frozen.
    """
    body = own["featurizer"]

    def built(spec: NetworkSpec) -> nn.Module:
        if isinstance(spec, FeaturizerSpec):
            if spec.frozen and (reason := getattr(body, "why_not_frozen", None)):
                raise ConfigError(f"the algorithm keeps a frozen copy of the featurizer: {reason}")
            return deepcopy(body) if spec.frozen else another()
        if isinstance(spec, PerChannelSpec):
            return PerChannel(map_shapes(body, image), spec.initial)
        return build_head(spec)

    networks = Networks({**own, **{name: built(spec) for name, spec in needed.items() if name not in own}})
    for name, spec in needed.items():
        if isinstance(spec, FeaturizerSpec) and spec.frozen:
            networks.freeze([networks[name]], networks[name].parameters())
    return networks


def map_shapes(featurizer: nn.Module, image: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes of the maps of one image, without the axis of images; nothing is computed.

    Raises:
        ConfigError: the featurizer has no maps.
    """
    shadow: Any = deepcopy(featurizer).to("meta").eval()
    dtype = example_of(featurizer).dtype
    try:
        _, maps = shadow(torch.zeros(1, *image, device="meta", dtype=dtype), maps=True)
    except TypeError as error:
        raise ConfigError(
            f"the featurizer, {type(featurizer).__name__}, does not take maps=True, which the algorithm needs; see "
            "Featurizer.with_maps in dgbench/networks/stages.py"
        ) from error
    return [tuple(each.shape[1:]) for each in maps]


class PerChannel(nn.Module):
    """One number for each channel of each map; see :class:`~dgbench.requests.PerChannelSpec`.

    Args:
        maps: shapes of the maps, without the axis of images.
        initial: value of every number.
    """

    def __init__(self, maps: list[tuple[int, ...]], initial: float) -> None:
        super().__init__()
        shapes = [(1, shape[0], 1, 1) if len(shape) == 3 else (*[1] * len(shape), shape[-1]) for shape in maps]
        self.values = nn.ParameterList(nn.Parameter(torch.full(shape, initial)) for shape in shapes)

    def forward(self) -> list[Tensor]:
        """Tensors that broadcast against the maps."""
        return list(self.values)

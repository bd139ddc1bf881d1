"""A run's networks, initial weights included: the featurizer and what an algorithm asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import singledispatch
from itertools import chain, pairwise, repeat
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.containers import Networks, example_of
from dgbench.errors import ConfigError
from dgbench.network_specs import (
    ContextSpec,
    EmbeddingSpec,
    FeaturizerSpec,
    ImageDiscriminatorSpec,
    LeakyMLPSpec,
    LinearSpec,
    MLPSpec,
    NetworkSpec,
    PerChannelSpec,
    ProjectionSpec,
    Sizes,
    TaperedSpec,
    TranslatorSpec,
)
from dgbench.seeding import derive

FeaturizerFactory = Callable[[tuple[int, ...]], nn.Module]


def build_networks(
    featurizer: FeaturizerFactory,
    sizes_without_features: Sizes,
    needed: Callable[[Sizes], Mapping[str, NetworkSpec]],
    extra_channels: int,
    seed: int,
) -> tuple[Networks, Sizes]:
    """Build the featurizer, then the networks that the algorithm needs, in that order.

    Args:
        featurizer: makes a module with an attribute ``n_features`` from the shape of an image.
        sizes_without_features: all sizes but ``n_features``, which the featurizer decides.
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
        existing = {"featurizer": body}
        networks = assembled(existing, needed(sizes), image, lambda: featurizer(image))
    return networks, sizes


def assembled(
    existing: Mapping[str, nn.Module],
    needed: Mapping[str, NetworkSpec],
    image: tuple[int, ...],
    another: Callable[[], nn.Module],
) -> Networks:
    """Build the networks that an algorithm needs and join them with existing ones.

    Args:
        existing: networks by name, ``featurizer`` among them.
        needed: specifications by name; names in ``existing`` are not built again.
        image: C, H, W of the featurizer's input.
        another: makes one more featurizer.

    Raises:
        ConfigError: a network needs the featurizer's maps and it has none, or the featurizer cannot
            be frozen.
    """
    body = existing["featurizer"]

    def built(spec: NetworkSpec) -> nn.Module:
        if isinstance(spec, FeaturizerSpec):
            if not spec.frozen:
                return another()
            reason = getattr(body, "why_not_frozen", None)
            if reason:
                raise ConfigError(f"the algorithm keeps a frozen copy of the featurizer: {reason}")
            return deepcopy(body)
        if isinstance(spec, PerChannelSpec):
            return PerChannel(map_shapes(body, image), spec.initial)
        return build_head(spec)

    new = {name: built(spec) for name, spec in needed.items() if name not in existing}
    networks = Networks({**existing, **new})
    for name, spec in needed.items():
        if isinstance(spec, FeaturizerSpec) and spec.frozen:
            networks.freeze([networks[name]], networks[name].parameters())
    return networks


def map_shapes(featurizer: nn.Module, image: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Find the shapes of one image's maps, without the image axis.

    No values are computed: it runs on the meta device.

    Raises:
        ConfigError: the featurizer has no maps.
    """
    shadow: Any = deepcopy(featurizer).to("meta").eval()
    dtype = example_of(featurizer).dtype
    try:
        _, maps = shadow(torch.zeros(1, *image, device="meta", dtype=dtype), maps=True)
    except TypeError as error:
        raise ConfigError(
            f"the featurizer, {type(featurizer).__name__}, does not take maps=True, which the "
            "algorithm needs; see Featurizer.with_maps in dgbench/networks/featurizer.py"
        ) from error
    return [tuple(image_map.shape[1:]) for image_map in maps]


class PerChannel(nn.Module):
    """One number for each channel of each map; see :class:`~dgbench.network_specs.PerChannelSpec`.

    Args:
        maps: shapes of the maps, without the axis of images.
        initial: value of every number.
    """

    def __init__(self, maps: list[tuple[int, ...]], initial: float) -> None:
        super().__init__()
        self.values = nn.ParameterList()
        per_channel: tuple[int, ...]
        for shape in maps:
            if len(shape) == 3:
                per_channel = (1, shape[0], 1, 1)
            else:
                per_channel = (*[1] * len(shape), shape[-1])
            self.values.append(nn.Parameter(torch.full(per_channel, initial)))

    def forward(self) -> list[Tensor]:
        """List the tensors, one per map, that broadcast against the maps."""
        return list(self.values)


@singledispatch
def build_head(spec: NetworkSpec) -> nn.Module:
    """Build the module that a specification describes, with fresh weights.

    They come from torch's global generator, which the caller seeds and restores. A new kind of
    specification registers its builder with ``@build_head.register``.

    Raises:
        TypeError: no builder is registered for this kind.
    """
    raise TypeError(f"no builder for {type(spec).__name__}; register one with @build_head.register")


@build_head.register
def _linear(spec: LinearSpec) -> nn.Module:
    layer = nn.Linear(spec.n_in, spec.n_out)
    if spec.xavier_gain is not None:
        nn.init.xavier_uniform_(layer.weight, gain=spec.xavier_gain)
        nn.init.zeros_(layer.bias)
    return layer


def _perceptron(
    widths: Iterable[int], between: Callable[[int], Sequence[nn.Module]]
) -> nn.Sequential:
    """Build linear layers of these widths.

    ``between(n_out)`` follows each layer of n_out units but the last.
    """
    layers: list[nn.Module] = []
    following: Sequence[nn.Module] = ()
    for n_in, n_out in pairwise(widths):  # one at a time: a file may name any number
        layers += [*following, nn.Linear(n_in, n_out)]
        following = between(n_out)
    return nn.Sequential(*layers)


@build_head.register
def _mlp(spec: MLPSpec) -> nn.Module:
    def between(n_out: int) -> list[nn.Module]:
        return [nn.Dropout(spec.dropout), nn.ReLU()] if spec.dropout > 0 else [nn.ReLU()]

    widths = chain([spec.n_in], repeat(spec.width, spec.depth - 1), [spec.n_out])
    return _perceptron(widths, between)


@build_head.register
def _tapered(spec: TaperedSpec) -> nn.Module:
    widths = [spec.n_in, max(spec.n_in // 2, 1), max(spec.n_in // 4, 1), spec.n_out]
    return _perceptron(widths, lambda n: [nn.ReLU()])


@build_head.register
def _leaky_mlp(spec: LeakyMLPSpec) -> nn.Module:
    widths = chain([spec.n_in], repeat(spec.width, spec.hidden + 1), [spec.n_out])
    return _perceptron(widths, lambda n: [nn.LeakyReLU()])


@build_head.register
def _projection(spec: ProjectionSpec) -> nn.Module:
    widths = [spec.size, spec.width, spec.width, spec.size]
    inner = _perceptron(widths, lambda n: [nn.BatchNorm1d(n), nn.ReLU()])
    return inner.append(nn.BatchNorm1d(spec.size))


# drawn from N(0, 1)
build_head.register(EmbeddingSpec, lambda spec: nn.Embedding(spec.n, spec.size))


@build_head.register
def _context(spec: ContextSpec) -> nn.Module:
    from dgbench.networks.context import ContextNetwork  # of ARM alone

    return ContextNetwork(spec.channels)


@build_head.register(TranslatorSpec)
@build_head.register(ImageDiscriminatorSpec)
def _of_images(spec: TranslatorSpec | ImageDiscriminatorSpec) -> nn.Module:
    from dgbench.networks.translators import discriminator, translator  # of DDG alone

    return translator(spec) if isinstance(spec, TranslatorSpec) else discriminator(spec)

"""Building a run's networks, initial weights included."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from dgbench.modules import Networks
from dgbench.networks.heads import build_head
from dgbench.requests import NetworkSpec, Sizes
from dgbench.seeding import derive

FeaturizerFactory = Callable[[tuple[int, int, int]], nn.Module]


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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "init"))
        body = featurizer((channels + extra_channels, sides[0], sides[1]))
        sizes = Sizes(**{**vars(sizes_without_features), "n_features": body.n_features})
        return Networks({"featurizer": body, **{name: build_head(spec) for name, spec in needed(sizes).items()}}), sizes

"""The networks that algorithms ask for besides the featurizer, built from their specifications."""

from __future__ import annotations

from functools import singledispatch
from itertools import pairwise

from torch import nn

from dgbench.networks.context import ContextNetwork
from dgbench.networks.translators import discriminator, translator
from dgbench.requests import (
    ContextSpec,
    EmbeddingSpec,
    ImageDiscriminatorSpec,
    LeakyMLPSpec,
    LinearSpec,
    MLPSpec,
    NetworkSpec,
    ProjectionSpec,
    TaperedSpec,
    TranslatorSpec,
)


@singledispatch
def build_head(spec: NetworkSpec) -> nn.Module:
    """The module that a specification describes, with fresh weights from torch's global generator.

    Whoever calls seeds that generator and puts it back. A new kind of specification registers its builder with
    ``@build_head.register``.

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


@build_head.register
def _mlp(spec: MLPSpec) -> nn.Module:
    widths = [spec.n_in, *[spec.width] * (spec.depth - 1)]
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        dropout = [nn.Dropout(spec.dropout)] if spec.dropout > 0 else []
        layers += [nn.Linear(n_in, n_out), *dropout, nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], spec.n_out))


@build_head.register
def _tapered(spec: TaperedSpec) -> nn.Module:
    wide, narrow = max(spec.n_in // 2, 1), max(spec.n_in // 4, 1)
    return nn.Sequential(
        nn.Linear(spec.n_in, wide), nn.ReLU(), nn.Linear(wide, narrow), nn.ReLU(), nn.Linear(narrow, spec.n_out)
    )


@build_head.register
def _leaky_mlp(spec: LeakyMLPSpec) -> nn.Module:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise([spec.n_in, *[spec.width] * (spec.hidden + 1)]):
        layers += [nn.Linear(n_in, n_out), nn.LeakyReLU()]
    return nn.Sequential(*layers, nn.Linear(spec.width, spec.n_out))


@build_head.register
def _projection(spec: ProjectionSpec) -> nn.Module:
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise([spec.size, spec.width, spec.width, spec.size]):
        layers += [nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@build_head.register
def _embedding(spec: EmbeddingSpec) -> nn.Module:
    return nn.Embedding(spec.n, spec.size)  # drawn from N(0, 1)


@build_head.register
def _context(spec: ContextSpec) -> nn.Module:
    return ContextNetwork(spec.channels)


@build_head.register
def _translator(spec: TranslatorSpec) -> nn.Module:
    return translator(spec)


@build_head.register
def _image_discriminator(spec: ImageDiscriminatorSpec) -> nn.Module:
    return discriminator(spec)

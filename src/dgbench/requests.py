"""What an algorithm may ask of networks: their shapes, further networks, and mixed styles inside a featurizer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


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


@dataclass(frozen=True)
class TranslatorSpec:
    """Takes images apart into variation and semantics and puts them together, see ``networks/translators.py``.

    (n, 1, H, W) gray images -> their variations; variations and (n, n_features) features -> (n, C, H, W).

    Args:
        image: C, H, W.
        n_features: numbers that stand for the semantics.
    """

    image: tuple[int, ...]
    n_features: int


@dataclass(frozen=True)
class ImageDiscriminatorSpec:
    """Tells made images from real ones, (n, C, H, W) -> a list of tensors, one for each scale."""

    image: tuple[int, ...]


def translator_kind(image: tuple[int, ...]) -> str:
    """Which translator images of shape C, H, W get: ``large``, ``digits`` or ``mlp``."""
    height, width = image[1], image[2]
    if (height, width) == (28, 28):
        return "digits"
    return "large" if min(height, width) >= 32 and height % 16 == width % 16 == 0 else "mlp"


NetworkSpec = LinearSpec | MLPSpec | EmbeddingSpec | ContextSpec | TranslatorSpec | ImageDiscriminatorSpec


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

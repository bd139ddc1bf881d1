"""What an algorithm may ask of networks: shapes, further networks, and mixed styles."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Sizes:
    """The numbers that an algorithm is made for."""

    n_features: int
    n_classes: int
    n_envs: int  #: training environments of one step, E
    #: C, H, W; the shape of features if a frozen part of the network was computed before
    image: tuple[int, ...]
    n_steps: int = 1  #: optimizer steps in all, T
    n_images: int = 0  #: every training image has a number below it; 0 if images have no numbers
    #: training images of the run, of all its environments together; runs of a stack may differ
    n_trained_on: int = 0
    #: x * std + mean lies in [0, 1], channel by channel; empty: x itself does
    pixel_mean: tuple[float, ...] = ()
    pixel_std: tuple[float, ...] = ()
    #: training environments that each step draws its E from; 0 if it has all
    n_drawn_from: int = 0

    @property
    def n_trained_envs(self) -> int:
        """Training environments of the run, whether a step has all or draws some."""
        return self.n_drawn_from or self.n_envs


@dataclass(frozen=True)
class LinearSpec:
    """One linear layer with bias, (n, n_in) -> (n, n_out).

    ``xavier_gain`` asks for Xavier-uniform weights and zero bias instead of the framework's
    initialization.
    """

    n_in: int
    n_out: int
    xavier_gain: float | None = None


@dataclass(frozen=True)
class MLPSpec:
    """DomainBed's multilayer perceptron, (n, n_in) -> (n, n_out); dropout precedes each ReLU."""

    n_in: int
    n_out: int
    width: int
    depth: int
    dropout: float = 0.0


@dataclass(frozen=True)
class TaperedSpec:
    """DomainBed's nonlinear classifier, (n, n_in) -> (n, n_out).

    Its widths are n_in // 2 and n_in // 4, with a ReLU after each.
    """

    n_in: int
    n_out: int


@dataclass(frozen=True)
class LeakyMLPSpec:
    """A perceptron with ``hidden`` + 1 layers and leaky ReLU (0.01), (n, n_in) -> (n, n_out).

    Each layer has ``width`` units.
    """

    n_in: int
    n_out: int
    width: int
    hidden: int


@dataclass(frozen=True)
class ProjectionSpec:
    """Three linear layers, (n, size) -> (n, size), each with BatchNorm, and ReLU between them."""

    size: int
    width: int


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
class FeaturizerSpec:
    """One more featurizer, (n, C, H, W) -> (n, m)."""

    #: a copy of the featurizer with its initial weights, which never change; otherwise one more
    #: network of the same kind, with the same published weights if there are any and random weights
    #: of its own if not
    frozen: bool = False


@dataclass(frozen=True)
class PerChannelSpec:
    """One learned number for each channel of each map of the featurizer.

    The maps are those of ``featurizer(x, maps=True)``.

    Called without arguments it gives a list of tensors that broadcast against the maps: (1, C, 1,
    1) for (n, C, H, W), (1, 1, C) for tokens (n, L, C), (1, C) for (n, C).
    """

    initial: float  #: value that all numbers start from


@dataclass(frozen=True)
class TranslatorSpec:
    """Takes images apart into variation and semantics and puts them together.

    See ``networks/translators.py``.

    (n, 1, H, W) gray images -> their variations; variations and the semantics of images -> (n, C,
    H, W).
    """

    image: tuple[int, ...]  #: C, H, W
    #: of a featurizer; images of the kind ``large`` have four times as many numbers for their
    #: semantics
    n_features: int

    @property
    def kind(self) -> str:
        """``large``, ``digits`` or ``mlp``."""
        return translator_kind(self.image)


@dataclass(frozen=True)
class ImageDiscriminatorSpec:
    """Tells made images from real ones, (n, C, H, W) -> a list of tensors, one for each scale."""

    image: tuple[int, ...]


def translator_kind(image: tuple[int, ...]) -> str:
    """Choose the kind of translator for images of C, H, W: ``large``, ``digits`` or ``mlp``."""
    height = image[1]
    width = image[2]
    if (height, width) == (28, 28):
        return "digits"
    if min(height, width) >= 32 and height % 16 == width % 16 == 0:
        return "large"
    return "mlp"


NetworkSpec = (
    LinearSpec
    | MLPSpec
    | LeakyMLPSpec
    | ProjectionSpec
    | TaperedSpec
    | EmbeddingSpec
    | ContextSpec
    | FeaturizerSpec
    | PerChannelSpec
    | TranslatorSpec
    | ImageDiscriminatorSpec
)


@dataclass(frozen=True)
class StyleMix:
    """How one stage of a featurizer mixes feature statistics between n images of a forward pass.

    A featurizer that can do so has an attribute ``style_stages`` (the numbers of its stages) and
    takes ``forward(x, styles={stage: StyleMix})``.
    """

    active: Tensor  #: 0-dimensional bool; False leaves the features as they are
    weight: Tensor  #: (n,) weight of an image's own statistics
    partner: Tensor  #: (n,) row whose statistics get the rest

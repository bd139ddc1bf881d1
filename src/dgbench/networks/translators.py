"""Networks that take images apart and put them together again, and their discriminators.

A translator has an encoder, which reads the variation of an image (what its class does not say)
from its gray version, and a decoder, which makes an image of a variation and of the features of a
featurizer, its semantics. There are three kinds: ``large`` for images whose sides are multiples of
16, from 32 on, and ``digits`` for 28 x 28, both as published by Zhang et al. (2022); ``mlp`` for
any other size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.network_specs import ImageDiscriminatorSpec, TranslatorSpec, translator_kind

LEAK = 0.2  # slope of every LeakyReLU
HIDDEN = 64  # units of the kind ``mlp``, and numbers of a variation that is no map
WIDTH = 256  # channels of a variation of the kind ``large``
BLOCKS = 4  # its residual blocks


def block(
    n_in: int, n_out: int, kernel: int, stride: int = 1, norm: nn.Module | None = None
) -> nn.Sequential:
    """Build a block of reflection padding, convolution, normalization and LeakyReLU."""
    return nn.Sequential(*_linear_block(n_in, n_out, kernel, stride, norm), nn.LeakyReLU(LEAK))


def _linear_block(
    n_in: int, n_out: int, kernel: int, stride: int = 1, norm: nn.Module | None = None
) -> nn.Sequential:
    padding = {"padding": kernel // 2, "padding_mode": "reflect"} if kernel > 1 else {}
    conv = nn.Conv2d(n_in, n_out, kernel, stride, **padding)  # type: ignore[arg-type]
    return nn.Sequential(conv) if norm is None else nn.Sequential(conv, norm)


class Residual(nn.Module):
    """x + linear block(block(x)), two convolutions of 3 x 3.

    Args:
        width: channels.
        norms: the normalization after either convolution, or none.
    """

    def __init__(self, width: int, norms: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        first, second = norms or (None, None)
        self.body = nn.Sequential(
            block(width, width, 3, norm=first), _linear_block(width, width, 3, norm=second)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, width, H, W) to the same shape."""
        added: Tensor = x + self.body(x)
        return added


class StyledResidual(nn.Module):
    """A residual block whose instance norms get scales and shifts from outside.

    Args:
        width: channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = _linear_block(width, width, 3)
        self.second = _linear_block(width, width, 3)

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Map (n, width, H, W) to the same shape.

        Both styles are (n, 2 width): first convolution, then second.
        """
        w1, w2 = scale[:, :, None, None].chunk(2, 1)
        b1, b2 = shift[:, :, None, None].chunk(2, 1)
        h = F.leaky_relu(F.instance_norm(self.first(x)) * w1 + b1, LEAK)
        styled: Tensor = x + F.instance_norm(self.second(h)) * w2 + b2
        return styled


class ImageNorm(nn.Module):
    """Normalize each image over its channels and pixels, with the unbiased standard deviation.

    Args:
        width: channels, each of which has a scale, drawn from U(0, 1), and a shift.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the n images of (n, width, H, W), each by itself; the shape stays."""
        centered = x - x.mean((1, 2, 3), keepdim=True)
        # not std(), whose slope is infinite where an image is constant
        variance = centered.square().sum((1, 2, 3), keepdim=True) / (math.prod(x.shape[1:]) - 1)
        normed = centered / ((variance + torch.finfo(x.dtype).tiny).sqrt() + 1e-5)
        return normed * self.weight[:, None, None] + self.bias[:, None, None]


class Translator(nn.Module):
    """Encoder and decoder in one network.

    Args:
        encoder: (n, 1, H, W) gray images -> variations.
        decoder: variations and (n, f) features -> (n, C, H, W) images.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, x: Tensor, features: Tensor | None = None, evaluate: bool = False) -> Tensor:
        """Encode gray images; with features decode the variations ``x``.

        Args:
            evaluate: BatchNorm uses its running statistics and leaves them, in training too.
        """
        with self._evaluating(evaluate):
            output: Tensor = self.encoder(x) if features is None else self.decoder(x, features)
        return output

    @contextmanager
    def _evaluating(self, evaluate: bool) -> Iterator[None]:
        was_training = self.training
        self.train(was_training and not evaluate)
        try:
            yield
        finally:
            self.train(was_training)


class StyledDecoder(nn.Module):
    """Residual blocks, each styled by one part of the features, then layers that enlarge.

    Args:
        channels: of the image.
        n_part: numbers in each of the four parts of the features.
    """

    def __init__(self, channels: int, n_part: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(StyledResidual(WIDTH) for _ in range(BLOCKS))
        self.scales = nn.ModuleList(_styles(n_part) for _ in range(BLOCKS))
        self.shifts = nn.ModuleList(_styles(n_part) for _ in range(BLOCKS))
        self.last = _enlarging(WIDTH, 4, channels)

    def forward(self, v: Tensor, features: Tensor) -> Tensor:
        """Decode variations and features to (n, channels, H, W) images.

        Args:
            v: (n, 256, H / 16, W / 16) variations.
            features: (n, 4 n_part).
        """
        parts = features.chunk(BLOCKS, 1)
        styled = zip(self.blocks, self.scales, self.shifts, parts, strict=True)
        for residual, scale, shift, part in styled:
            v = residual(v, scale(part), shift(part))
        image: Tensor = self.last(v)
        return image


def _styles(n_in: int) -> nn.Sequential:
    """Build a network from n_in numbers to a scale or shift of each channel of two convolutions."""
    widths = [n_in, *[2 * WIDTH] * 3]
    layers: list[nn.Module] = []
    for first, second in pairwise(widths):
        layers += [nn.Linear(first, second), nn.LeakyReLU(LEAK)]
    return nn.Sequential(*layers[:-1])


def _enlarging(width: int, times: int, channels: int) -> nn.Sequential:
    """Build layers that double sides and halve channels ``times`` times.

    The last ones map to the image's ``channels``.
    """
    layers: list[nn.Module] = []
    for _ in range(times):
        half = width // 2
        layers += [nn.Upsample(scale_factor=2), block(width, half, 5, norm=ImageNorm(half))]
        width = half
    layers += [block(width, width, 3), block(width, width, 3), nn.Conv2d(width, channels, 1)]
    return nn.Sequential(*layers)


class JoiningDecoder(nn.Module):
    """Decode variation and features, concatenated, with one network.

    Args:
        body: (n, v + f) -> pixels in any shape.
        image: C, H, W.
    """

    def __init__(self, body: nn.Module, image: tuple[int, ...]) -> None:
        super().__init__()
        self.body = body
        self.image = image

    def forward(self, v: Tensor, features: Tensor) -> Tensor:
        """Decode (n, v) variations and (n, f) features to (n, C, H, W) images."""
        return self.body(torch.cat([v, features], 1)).view(-1, *self.image)  # type: ignore[no-any-return]


class MultiScale(nn.Module):
    """The same kind of discriminator on an image, on half its size, and so on.

    Args:
        scales: one network for each size.
    """

    def __init__(self, scales: Sequence[nn.Module]) -> None:
        super().__init__()
        self.scales = nn.ModuleList(scales)

    def forward(self, x: Tensor) -> list[Tensor]:
        """List the (n, ...) output of each network for (n, C, H, W) images.

        Images are halved in size from one network to the next.
        """
        outputs = []
        for i, network in enumerate(self.scales):
            if i > 0:
                x = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)
            outputs.append(network(x))
        return outputs


def translator(spec: TranslatorSpec) -> Translator:
    """Build the translator for images of one shape."""
    channels, height, width = spec.image
    if spec.kind == "mlp":
        pixels = height * width
        encoder = nn.Sequential(nn.Flatten(), *_perceptron(pixels, HIDDEN))
        body = nn.Sequential(*_perceptron(HIDDEN + spec.n_features, channels * pixels))
        return Translator(encoder, JoiningDecoder(body, spec.image))
    if spec.kind == "digits":
        return Translator(_digits_encoder(), JoiningDecoder(_digits_decoder(spec), spec.image))
    network = Translator(_large_encoder(), StyledDecoder(channels, spec.n_features))
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.kaiming_normal_(layer.weight)  # variance 2 / fan in
            nn.init.zeros_(layer.bias)
    return network


def _large_encoder() -> nn.Sequential:
    widths = [WIDTH // share for share in (16, 8, 8, 4, 4, 2, 2, 1)]
    shapes = zip([1, *widths], widths, (2, 1, 1, 2, 1, 2, 1, 2), strict=False)
    layers: list[nn.Module] = []
    for n_in, n_out, stride in shapes:
        layers.append(block(n_in, n_out, 3, stride, nn.InstanceNorm2d(n_out)))
    for _ in range(BLOCKS):
        norms = [nn.InstanceNorm2d(WIDTH), nn.InstanceNorm2d(WIDTH)]
        layers.append(Residual(WIDTH, norms))
    return nn.Sequential(*layers)


def _digits_encoder() -> nn.Sequential:
    shapes = [(1, 16, 2), (16, 32, 1), (32, 32, 1), (32, HIDDEN, 2)]
    blocks = [
        block(n_in, n_out, 3, stride, nn.BatchNorm2d(n_out)) for n_in, n_out, stride in shapes
    ]
    return nn.Sequential(*blocks, _normed_residual(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _digits_decoder(spec: TranslatorSpec) -> nn.Sequential:
    first = [
        nn.Linear(HIDDEN + spec.n_features, HIDDEN),
        nn.BatchNorm1d(HIDDEN),
        nn.LeakyReLU(LEAK),
    ]
    spread = nn.ConvTranspose2d(HIDDEN, HIDDEN, 7, bias=False)
    grown = [nn.Unflatten(1, (HIDDEN, 1, 1)), spread, nn.BatchNorm2d(HIDDEN), nn.LeakyReLU(LEAK)]
    return nn.Sequential(*first, *grown, _normed_residual(), _enlarging(HIDDEN, 2, spec.image[0]))


def _normed_residual() -> Residual:
    return Residual(HIDDEN, [nn.BatchNorm2d(HIDDEN), nn.BatchNorm2d(HIDDEN)])


def _perceptron(n_in: int, n_out: int) -> list[nn.Module]:
    return [nn.Linear(n_in, HIDDEN), nn.LeakyReLU(LEAK), nn.Linear(HIDDEN, n_out)]


def discriminator(spec: ImageDiscriminatorSpec) -> MultiScale:
    """Build the discriminator for images of one shape."""
    kind = translator_kind(spec.image)
    if kind == "mlp":
        layers = _perceptron(math.prod(spec.image), 1)
        return MultiScale([nn.Sequential(nn.Flatten(), *layers)])
    channels = spec.image[0]
    if kind == "large":
        network = MultiScale([_large_scale(channels) for _ in range(3)])
    else:
        network = MultiScale([_digits_scale(channels) for _ in range(2)])
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=0.02)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    return network


def _large_scale(channels: int) -> nn.Sequential:
    blocks = [
        block(channels, 32, 1),
        block(32, 32, 3),
        block(32, 32, 3, 2),
        block(32, 32, 3),
        block(32, 64, 3, 2),
    ]
    return nn.Sequential(*blocks, *(Residual(64) for _ in range(BLOCKS)), nn.Conv2d(64, 1, 1))


def _digits_scale(channels: int) -> nn.Sequential:
    blocks = [block(channels, 16, 1), block(16, 16, 3), block(16, 16, 3, 2)]
    return nn.Sequential(*blocks, Residual(16), nn.Conv2d(16, 1, 1))

"""Featurizers that are trained from scratch, for small images and for vectors of features."""

from __future__ import annotations

import math
from functools import partial

from torch import Tensor, nn

from dgbench.errors import ConfigError
from dgbench.networks.featurizer import Featurizer, Parts, Stage

SIDE = 32  # of the wide residual network's images
WIDTHS = (16, 32, 64, 128)  # its channels
BLOCKS_PER_GROUP = 2
NORMALIZE = ("batch", "none")
#: why it cannot be frozen with its initial weights
FROZEN = {
    "batch": "its normalization would stay at mean 0 and deviation 1; set backbone.normalize=none",
    "none": None,
}


class MLPFeaturizer(Featurizer):
    """OoD-Bench's perceptron for 14 x 14 digits (Ye et al., 2022).

    It maps (n, C, H, W) or (n, d) to (n, width) by two hidden layers: flatten, linear, ReLU,
    linear, ReLU. Weights are Xavier-uniform with gain sqrt(2), biases zero.

    Args:
        image: C, H, W, or d.
        width: units of each hidden layer, and features m.
    """

    takes = ("pictures", "vectors")
    one_image_size = True

    def __init__(self, image: tuple[int, ...], width: int = 390) -> None:
        super().__init__()
        if type(width) is not int or width < 1:
            raise ConfigError(
                f"backbone.width={width} is not a positive number of units; 390 is the published "
                "width"
            )
        self.n_features = width
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(image), width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(2))
                nn.init.zeros_(layer.bias)

    def parts(self) -> Parts:
        flatten, first, relu, second, last_relu = self.layers
        stages = (Stage.of(relu), Stage.of(second, last_relu))
        return Parts(Stage.of(flatten, first), stages, Stage.of())


class MNISTCNN(Featurizer):
    """DomainBed's network for 28 x 28 digits (Gulrajani and Lopez-Paz, 2021).

    It maps (n, C, H, W) to (n, 2 * width) by four 3 x 3 convolutions, the second with stride 2,
    each followed by ReLU and then GroupNorm(8); global average pool. There is no max pooling and no
    fully connected layer, and the output is the same in training and evaluation.

    Args:
        image: C, H, W.
        width: channels of the first convolution, a multiple of 8; the others have twice as many.
        min_size: smallest image side accepted.

    Raises:
        ConfigError: the image is too small, or width is not a multiple of 8.
    """

    def __init__(self, image: tuple[int, ...], width: int = 64, min_size: int = 14) -> None:
        super().__init__()
        channels, *sides = image
        if min(sides) < min_size:
            raise ConfigError(
                f"backbone mnist_cnn takes images of at least {min_size} x {min_size}, these are "
                f"{sides[0]} x {sides[1]}; use backbone=mlp, or dataset.base=mnist"
            )
        if type(width) is not int or width < 8 or width % 8:
            raise ConfigError(
                f"backbone.width={width} is not a multiple of 8 (GroupNorm has 8 groups); 64 is "
                "published"
            )
        self.n_features = 2 * width
        shapes = [
            (channels, width, 1),
            (width, 2 * width, 2),
            (2 * width, 2 * width, 1),
            (2 * width, 2 * width, 1),
        ]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, 3, stride=s, padding=1) for i, o, s in shapes)
        self.norms = nn.ModuleList(nn.GroupNorm(8, o) for _, o, _ in shapes)

    def parts(self) -> Parts:
        def block(h: Tensor, i: int) -> Tensor:
            if i > 0:
                h = self.convs[i](h)
            normed: Tensor = self.norms[i](h.relu())
            return normed

        first, *convs = self.convs
        modules = [(self.norms[0],), *zip(convs, list(self.norms)[1:], strict=True)]
        blocks = tuple(Stage(partial(block, i=i), used) for i, used in enumerate(modules))
        return Parts(Stage.of(first), blocks, Stage(lambda h: h.mean((2, 3)), ()))


class WideResNet(Featurizer):
    """WideResNet 16-2, in DomainBed's form (Zagoruyko and Komodakis, 2016).

    It maps (n, C, 32, 32) to (n, 128) by a 3 x 3 convolution to 16 channels; three groups of two
    blocks with 32, 64, 128 channels and strides 1, 2, 2; BatchNorm with momentum 0.9, ReLU, average
    pool. Convolutions have biases and the framework's initialization. The groups are its three
    stages.

    Raises:
        ConfigError: the images are not 32 x 32.
    """

    n_features = WIDTHS[-1]

    def __init__(self, image: tuple[int, int, int], norm: str = "train") -> None:
        if tuple(image[1:]) != (SIDE, SIDE):
            raise ConfigError(
                f"backbone wide_resnet takes images of {SIDE} x {SIDE}, these are {image[1]} x "
                f"{image[2]}; set dataset.image_size={SIDE}, or use backbone=resnet18"
            )
        super().__init__(norm)
        self.conv = nn.Conv2d(image[0], WIDTHS[0], 3, padding=1)
        self.groups = nn.ModuleList()
        for n_in, n_out, stride in zip(WIDTHS, WIDTHS[1:], (1, 2, 2), strict=False):
            further = [_Block(n_out, n_out, 1) for _ in range(BLOCKS_PER_GROUP - 1)]
            self.groups.append(nn.Sequential(_Block(n_in, n_out, stride), *further))
        self.bn = nn.BatchNorm2d(WIDTHS[-1], momentum=0.9)
        self.set_norms()
        self.train()

    def parts(self) -> Parts:
        end = Stage(lambda h: self.bn(h).relu().mean((2, 3)), (self.bn,))
        return Parts(Stage.of(self.conv), tuple(map(Stage.of, self.groups)), end)


class _Block(nn.Module):
    """conv(ReLU(BN(conv(ReLU(BN(x)))))) + shortcut(x); the second convolution has the stride."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(n_in)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, stride=stride, padding=1)
        keeps_shape = stride == 1 and n_in == n_out
        self.shortcut = nn.Identity() if keeps_shape else nn.Conv2d(n_in, n_out, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(self.bn1(x).relu())
        h = self.conv2(self.bn2(h).relu())
        out: Tensor = h + self.shortcut(x)
        return out


def normalization(kind: str, d: int) -> nn.Module:
    """Build the normalization that the d features go through first.

    ``batch`` is BatchNorm without scale and shift: in training a feature has mean 0 and deviation 1
    over a minibatch, in evaluation the running mean and variance of the training environments'
    minibatches are taken. A held-out environment is therefore normalized by statistics in which it
    has no part.

    Raises:
        ConfigError: another kind.
    """
    if kind not in NORMALIZE:
        raise ConfigError(f"backbone.normalize={kind} is unknown; choose {' or '.join(NORMALIZE)}")
    return nn.BatchNorm1d(d, affine=False) if kind == "batch" else nn.Identity()


class LinearFeaturizer(Featurizer):
    """The features themselves, normalized or as they are, for a linear classifier.

    It maps (n, d) to (n, d) and has no parameters.

    Args:
        image: d.
        normalize: ``batch`` or ``none``, see :func:`normalization`.
    """

    takes = ("vectors",)

    def __init__(self, image: tuple[int, ...], normalize: str = "batch") -> None:
        super().__init__()
        (self.n_features,) = image
        self.normalize = normalization(normalize, self.n_features)
        self.why_not_frozen = FROZEN[normalize]

    def parts(self) -> Parts:
        return Parts(Stage.of(), (Stage.of(self.normalize),), Stage.of())


class FeatureMLP(Featurizer):
    """A perceptron on features: normalization, then ``depth`` times linear and ReLU.

    It maps (n, d) to (n, width).

    Args:
        image: d.
        width: units of each hidden layer, and features m.
        depth: hidden layers.
        normalize: ``batch`` or ``none``, see :func:`normalization`.

    Raises:
        ConfigError: a width or depth below 1.
    """

    takes = ("vectors",)

    def __init__(
        self, image: tuple[int, ...], width: int = 128, depth: int = 2, normalize: str = "batch"
    ) -> None:
        super().__init__()
        for key, value in (("width", width), ("depth", depth)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(
                    f"backbone.{key}={value} is not a positive integer; give 1 or more"
                )
        (d,) = image
        self.n_features = width
        self.normalize = normalization(normalize, d)
        self.why_not_frozen = FROZEN[normalize]
        self.layers = nn.ModuleList([nn.Linear(d, width)])
        self.layers.extend(nn.Linear(width, width) for _ in range(depth - 1))
        self.relu = nn.ReLU()

    def parts(self) -> Parts:
        first, *rest = self.layers
        stages = (Stage.of(self.relu), *(Stage.of(layer, self.relu) for layer in rest))
        return Parts(Stage.of(self.normalize, first), stages, Stage.of())

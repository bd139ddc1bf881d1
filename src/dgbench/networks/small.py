"""Featurizers for small images, trained from scratch."""

from __future__ import annotations

import math
from functools import partial

from torch import Tensor, nn

from dgbench.errors import ConfigError
from dgbench.networks.stages import Featurizer, Stage


class MLPFeaturizer(Featurizer):
    """Two hidden layers, (n, C, H, W) or (n, d) -> (n, width): OoD-Bench's for 14 x 14 digits (Ye et al., 2022).

    flatten, linear, ReLU, linear, ReLU; Xavier-uniform weights with gain sqrt(2), zero biases.

    Args:
        image: C, H, W, or d.
        width: units of each hidden layer, and features m.
    """

    takes = ("pictures", "vectors")
    one_image_size = True

    def __init__(self, image: tuple[int, ...], width: int = 390) -> None:
        super().__init__()
        if width < 1:
            raise ConfigError(f"backbone.width={width} is not a positive number of units; 390 is the published width")
        self.n_features = width
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(image), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(2))
                nn.init.zeros_(layer.bias)

    def stages(self) -> list[Stage]:
        flatten, first, relu, second, last_relu = self.layers
        return [Stage.of(flatten, first, relu), Stage.of(second, last_relu)]

    def with_maps(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        flatten, first, relu, second, last_relu = self.layers
        maps = [first(flatten(x))]
        maps.append(relu(maps[0]))
        maps.append(last_relu(second(maps[1])))
        return maps[-1], maps


class MNISTCNN(Featurizer):
    """DomainBed's network for 28 x 28 digits, (n, C, H, W) -> (n, 2 * width) (Gulrajani and Lopez-Paz, 2021).

    Four 3 x 3 convolutions, the second with stride 2, each followed by ReLU and then GroupNorm(8); global average
    pool. No max pooling, no fully connected layer, the same output in training and evaluation.

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
        if width < 8 or width % 8:
            raise ConfigError(
                f"backbone.width={width} is not a multiple of 8 (GroupNorm has 8 groups); 64 is published"
            )
        self.n_features = 2 * width
        shapes = [(channels, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1), (2 * width, 2 * width, 1)]
        self.convs = nn.ModuleList(nn.Conv2d(i, o, 3, stride=s, padding=1) for i, o, s in shapes)
        self.norms = nn.ModuleList(nn.GroupNorm(8, o) for _, o, _ in shapes)

    def stages(self) -> list[Stage]:
        def block(h: Tensor, i: int) -> Tensor:
            normed: Tensor = self.norms[i](self.convs[i](h).relu())
            return normed.mean((2, 3)) if i == len(self.convs) - 1 else normed

        return [Stage(partial(block, i=i), (self.convs[i], self.norms[i])) for i in range(len(self.convs))]

    def with_maps(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        maps = [self.convs[0](x)]
        h = maps[0]
        for i, norm in enumerate(self.norms):
            h = norm((self.convs[i](h) if i else h).relu())
            maps.append(h)
        return h.mean((2, 3)), maps

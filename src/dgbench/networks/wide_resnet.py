"""DomainBed's wide residual network for 32 x 32 images, trained from scratch."""

from __future__ import annotations

from torch import Tensor, nn

from dgbench.errors import ConfigError
from dgbench.networks.stages import Featurizer, Stage

SIDE = 32
WIDTHS = (16, 32, 64, 128)
BLOCKS_PER_GROUP = 2


class WideResNet(Featurizer):
    """WideResNet 16-2, (n, C, 32, 32) -> (n, 128) (Zagoruyko and Komodakis, 2016; DomainBed's form).

    A 3 x 3 convolution to 16 channels; three groups of two blocks with 32, 64, 128 channels and strides 1, 2, 2;
    BatchNorm with momentum 0.9, ReLU, average pool. Convolutions have biases and the framework's initialization.
    Three stages, the groups.

    Raises:
        ConfigError: the images are not 32 x 32.
    """

    n_features = WIDTHS[-1]

    def __init__(self, image: tuple[int, int, int], norm: str = "train") -> None:
        if tuple(image[1:]) != (SIDE, SIDE):
            raise ConfigError(
                f"backbone wide_resnet takes images of {SIDE} x {SIDE}, these are {image[1]} x {image[2]}; "
                f"set dataset.image_size={SIDE}, or use backbone=resnet18"
            )
        super().__init__(norm)
        self.conv = nn.Conv2d(image[0], WIDTHS[0], 3, padding=1)
        self.groups = nn.ModuleList(
            nn.Sequential(
                *(_Block(n_in if i == 0 else n_out, n_out, stride if i == 0 else 1) for i in range(BLOCKS_PER_GROUP))
            )
            for n_in, n_out, stride in zip(WIDTHS, WIDTHS[1:], (1, 2, 2), strict=False)
        )
        self.bn = nn.BatchNorm2d(WIDTHS[-1], momentum=0.9)
        self.set_norms()
        self.train()

    def stages(self) -> list[Stage]:
        first, second, third = self.groups

        def pool(h: Tensor) -> Tensor:
            features: Tensor = self.bn(third(h)).relu().mean((2, 3))
            return features

        return [
            Stage.of(self.conv, first),
            Stage.of(second),
            Stage(pool, (third, self.bn)),
        ]

    def with_maps(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        maps = [self.conv(x)]
        for group in self.groups:
            maps.append(group(maps[-1]))
        return self.bn(maps[-1]).relu().mean((2, 3)), maps


class _Block(nn.Module):
    """conv(ReLU(BN(conv(ReLU(BN(x)))))) + shortcut(x); the second convolution has the stride."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(n_in), nn.BatchNorm2d(n_out)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, stride=stride, padding=1)
        same = stride == 1 and n_in == n_out
        self.shortcut = nn.Identity() if same else nn.Conv2d(n_in, n_out, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(self.bn1(x).relu())
        h = self.conv2(self.bn2(h).relu())
        out: Tensor = h + self.shortcut(x)
        return out

"""Featurizers for vectors of features, trained from scratch."""

from __future__ import annotations

from torch import Tensor, nn

from dgbench.errors import ConfigError
from dgbench.networks.stages import Featurizer, Stage

NORMALIZE = ("batch", "none")
FROZEN = {
    "batch": "its normalization would stay at mean 0 and deviation 1; set backbone.normalize=none",
    "none": None,
}  #: why it cannot be frozen with its initial weights


def normalization(kind: str, d: int) -> nn.Module:
    """What the d features go through first.

    ``batch`` is BatchNorm without scale and shift: in training a feature has mean 0 and deviation 1 over a minibatch,
    in evaluation the running mean and variance of the training environments' minibatches are taken. A held-out
    environment is therefore normalized by statistics in which it has no part.

    Raises:
        ConfigError: another kind.
    """
    if kind not in NORMALIZE:
        raise ConfigError(f"backbone.normalize={kind} is unknown; choose {' or '.join(NORMALIZE)}")
    return nn.BatchNorm1d(d, affine=False) if kind == "batch" else nn.Identity()


class LinearFeaturizer(Featurizer):
    """The features themselves, (n, d) -> (n, d): a linear classifier sees them normalized, or as they are.

    It has no parameters.

    Args:
        image: d.
        normalize: ``batch`` or ``none``, see :func:`normalization`.
    """

    takes = ("vectors",)

    def __init__(self, image: tuple[int, ...], normalize: str = "batch") -> None:
        super().__init__()
        (self.n_features,) = image
        self.normalize, self.why_not_frozen = normalization(normalize, self.n_features), FROZEN[normalize]

    def stages(self) -> list[Stage]:
        return [Stage.of(self.normalize)]

    def with_maps(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        z = self.normalize(x)
        return z, [x, z]


class FeatureMLP(Featurizer):
    """A perceptron on features, (n, d) -> (n, width): normalization, then ``depth`` times linear and ReLU.

    Args:
        image: d.
        width: units of each hidden layer, and features m.
        depth: hidden layers.
        normalize: ``batch`` or ``none``, see :func:`normalization`.

    Raises:
        ConfigError: a width or depth below 1.
    """

    takes = ("vectors",)

    def __init__(self, image: tuple[int, ...], width: int = 128, depth: int = 2, normalize: str = "batch") -> None:
        super().__init__()
        for key, value in (("width", width), ("depth", depth)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"backbone.{key}={value} is not a positive integer; give 1 or more")
        (d,) = image
        self.n_features = width
        self.normalize, self.why_not_frozen = normalization(normalize, d), FROZEN[normalize]
        self.layers = nn.ModuleList(nn.Linear(d if k == 0 else width, width) for k in range(depth))
        self.relu = nn.ReLU()

    def stages(self) -> list[Stage]:
        first, *rest = self.layers
        return [Stage.of(self.normalize, first, self.relu), *(Stage.of(layer, self.relu) for layer in rest)]

    def with_maps(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        maps = [self.layers[0](self.normalize(x))]
        maps.append(self.relu(maps[0]))
        for layer in list(self.layers)[1:]:
            maps.append(self.relu(layer(maps[-1])))
        return maps[-1], maps

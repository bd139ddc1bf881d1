"""The toy problem of the golden numbers, stepped by the module that really trains.

3 environments of 4 rows, 5 inputs, 3 classes; a linear featurizer A without bias, the identity at
first, and a linear classifier (W, b); the images of call k = 1, 2, ... are shifted by 0.2 (k - 1).
float64, Adam with lr 0.01 and without decay unless a case says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dgbench.batches import EnvBatch
from dgbench.training.modules.factory import algorithm

N, B, M, K = 3, 4, 5, 3  # environments, rows of each, inputs and features, classes
LABELS = [(d + i * i) % 3 for d in range(N) for i in range(B)]


def batch(call: int = 1) -> EnvBatch:
    """The minibatches of the call, which counts from 1."""
    x = [
        [math.sin(0.7 * d + 1.3 * i + 0.5 * j + 0.1 * i * j + 0.2 * (call - 1)) for j in range(M)]
        for d in range(N)
        for i in range(B)
    ]
    return EnvBatch(torch.tensor(x, dtype=torch.float64), torch.tensor(LABELS), (B,) * N)


def filled(*shape: int) -> Tensor:
    """0.5 cos(0.3 + 0.7 t), t = 0, 1, ... row by row."""
    return 0.5 * torch.cos(0.3 + 0.7 * torch.arange(math.prod(shape), dtype=torch.float64)).view(
        shape
    )


def fill(module: nn.Module) -> None:
    """Give every parameter, BatchNorm's scale and shift too, the numbers of :func:`filled`."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(filled(*parameter.shape))


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer with these weights, in float64."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=torch.float64)
    layer.weight.data = weight.double()
    if bias is not None:
        layer.bias.data = bias.double()
    return layer


def featurizer(scale: float = 1.0) -> nn.Linear:
    """``scale`` times the identity."""
    return linear(scale * torch.eye(M))


def classifier() -> nn.Linear:
    """W[k, j] = cos(k + 0.9 j), b = (0.1, -0.2, 0.3)."""
    weight = [[math.cos(k + 0.9 * j) for j in range(M)] for k in range(K)]
    return linear(
        torch.tensor(weight, dtype=torch.float64),
        torch.tensor([0.1, -0.2, 0.3], dtype=torch.float64),
    )


def reversed_within_classes(y: Tensor) -> Tensor:
    """(N,) the partner of every row when the rows of each class, in order, are paired with
    themselves in reverse.
    """
    partner = torch.empty_like(y)
    for k in range(K):
        rows = (y == k).nonzero().flatten()
        partner[rows] = rows.flip(0)
    return partner


def checksum(values: Tensor) -> float:
    """c(T) = sum_i T_i cos(1 + i), T row by row."""
    flat = values.detach().double().flatten()
    return float((flat * torch.cos(1.0 + torch.arange(len(flat), dtype=torch.float64))).sum())


class Toy:
    """An algorithm on the toy problem.

    Args:
        name: of its YAML file.
        hparams: values that replace its defaults.
        networks: those that stand in the place of the usual ones or beside them; what else the
            algorithm needs is built and filled with :func:`filled`.
        **more: of :func:`dgbench.training.modules.factory.algorithm`.

    Attributes:
        calls: steps taken.
        loss: of the last step's last update.
        logs: what the last step logged, and as ``loss`` the loss of the update whose objective is
            ``objective``.
    """

    def __init__(
        self,
        name: str,
        hparams: Mapping[str, Any] | None = None,
        networks: Mapping[str, nn.Module] | None = None,
        **more: Any,
    ) -> None:
        given = {"featurizer": featurizer(), "classifier": classifier(), **(networks or {})}
        options = {"n_features": M, "image": (1, 1, M), **more}
        values = {"lr": 0.01, "weight_decay": 0.0, **(hparams or {})}
        self.port = algorithm(name, given, K, N, values, **options)
        self.module = self.port.module
        for own, network in self.networks.items():
            if own not in given:
                fill(network)
        self.module.collects = True
        self.calls, self.loss = 0, math.nan
        self.logs: dict[str, float] = {}

    @property
    def networks(self) -> Any:
        """The networks with the weights they have now."""
        return self.port.networks

    def step(
        self, random: Mapping[str, Any] | None = None, minibatches: EnvBatch | None = None
    ) -> Toy:
        """The next call, on its own minibatches unless others are given; returns itself."""
        self.calls += 1
        self.loss = float(
            self.port.step(batch(self.calls) if minibatches is None else minibatches, random)
        )
        self.logs = {name: float(value[0]) for _, name, value in self.module.take_values()}
        return self

    def gradient(self, name: str, *place: int) -> float:
        """An entry of the gradient that the last step left on a parameter,
        ``network.parameter``.
        """
        gradient = self.networks.get_parameter(name).grad
        return 0.0 if gradient is None else float(gradient[place])

    def gradients(self) -> tuple[float, float, float, float]:
        """dW[0,0], dW[2,3], dA[0,0], dA[2,3]."""
        w, a = "classifier.weight", "featurizer.weight"
        return (
            self.gradient(w, 0, 0),
            self.gradient(w, 2, 3),
            self.gradient(a, 0, 0),
            self.gradient(a, 2, 3),
        )

    def c(self, name: str) -> float:
        """Checksum of a parameter or buffer, ``network.tensor``, or of an entry of the state."""
        tensors = {
            **dict(self.networks.named_parameters()),
            **dict(self.networks.named_buffers()),
            **self.port.state,
        }
        return checksum(tensors[name])

    def checksums(self) -> tuple[float, float, float]:
        """c(A), c(W), c(b)."""
        return self.c("featurizer.weight"), self.c("classifier.weight"), self.c("classifier.bias")

    def total(self, network: str) -> float:
        """Sum of the checksums of all parameters of a network."""
        return sum(checksum(parameter) for parameter in self.networks[network].parameters())

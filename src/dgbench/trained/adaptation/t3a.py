"""Adjust the templates of the classes to the features of test images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dgbench.containers import example_of
from dgbench.errors import ConfigError
from dgbench.trained.adaptation.contract import Adaptation, Adapter
from dgbench.trained.adaptation.entropy import entropy
from dgbench.trained.matched import Matched
from dgbench.validation import AtLeast1, Refusal


class T3A(Adaptation):
    """Test-time templates adjuster (Iwasawa & Matsuo, 2021).

    A class has *supports*: at first the row of the linear classifier that is predicted as that
    class, then the features z of all test images so far that were. Of each class the ``keep``
    supports with the lowest entropy of their prediction stay. The template of a class is the sum of
    its supports, each of length 1, again of length 1, and

        logit_k = z . template_k,

    for the images of a batch after they have joined the supports. The network stands still.

    ``keep: null`` keeps all, as the paper's N/A; the authors' code drops the least certain one of
    each class there (``[:-1]``).

    Source: https://openreview.net/forum?id=e_yvNqkJKAW, equations 2 to 5;
    github.com/matsuolab/T3A.

    Args:
        keep: M, supports of a class that stay; None keeps all.
    """

    keep: Annotated[AtLeast1 | None, Refusal("is not an integer >= 1", "give one, or null for all")]

    def check(self, network: Matched, image: Sequence[int]) -> None:
        like = example_of(network)
        example = torch.zeros(2, *image, dtype=like.dtype, device=like.device)
        with torch.no_grad():
            classify(network, example)

    def start(self, network: Matched) -> Adapter:
        supports: Supports | None = None

        def adapt(x: Tensor) -> Tensor:
            nonlocal supports
            batch = classify(network, x)
            if supports is None:
                supports = classifier_supports(batch.weight, batch.bias)
            joined = supports.joined(batch.features, batch.logits)
            supports = joined.most_certain(self.keep)
            return batch.features @ templates(supports)

        return adapt


class Supports(NamedTuple):
    """Features that stand for classes."""

    features: Tensor  #: (s, m)
    labels: Tensor  #: (s, K), one-hot, as predicted
    entropies: Tensor  #: (s,) of the predictions

    def joined(self, features: Tensor, logits: Tensor) -> Supports:
        """Add (n, m) features with their (n, K) logits."""
        labels = one_hot(logits).to(self.labels)
        return Supports(
            torch.cat([self.features, features]),
            torch.cat([self.labels, labels]),
            torch.cat([self.entropies, entropy(logits)]),
        )

    def most_certain(self, most: int | None) -> Supports:
        """Keep the ``most`` of each class with the lowest entropy, earlier ones on ties."""
        if most is None:
            return self
        certain = []
        for is_class in self.labels.bool().unbind(1):
            positions = is_class.nonzero()[:, 0]
            order = self.entropies[positions].argsort(stable=True)
            certain.append(positions[order[:most]])
        rows = torch.cat(certain)
        return Supports(self.features[rows], self.labels[rows], self.entropies[rows])


def classifier_supports(weight: Tensor, bias: Tensor | None) -> Supports:
    """Make the supports that a stream begins with, the rows of a classifier (K, m), bias (K,)."""
    logits = F.linear(weight, weight, bias)
    return Supports(weight, one_hot(logits).to(weight), entropy(logits))


def one_hot(logits: Tensor) -> Tensor:
    """Return the (n, K) one-hot predictions of logits."""
    return F.one_hot(logits.argmax(1), logits.shape[1])


def templates(supports: Supports) -> Tensor:
    """Compute the (m, K) templates of the classes; that of a class without supports is 0."""
    directions = F.normalize(supports.features, dim=1)
    return F.normalize(directions.T @ supports.labels, dim=0)


class Classified(NamedTuple):
    """What a linear classifier made of a batch."""

    features: Tensor  #: (n, m)
    logits: Tensor  #: (n, K)
    weight: Tensor  #: (K, m)
    bias: Tensor | None  #: (K,)


def classify(network: Matched, x: Tensor) -> Classified:
    """Predict a batch, and find the linear layer whose outputs are the logits.

    Raises:
        ConfigError: no linear layer puts out the logits.
    """
    calls: list[tuple[nn.Linear, Tensor, Tensor]] = []

    def note(layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((layer, inputs[0], output))

    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        logits = network(x)
    finally:
        for hook in hooks:
            hook.remove()
    for layer, features, output in reversed(calls):
        if layer.out_features != network.n_outputs or output.dim() != 2:
            continue
        if torch.equal(network.of_classes(output).to(logits.dtype), logits):
            return _classified(network, layer, features, logits)
    raise ConfigError(
        "adaptation=t3a needs a linear layer whose outputs are the logits, and this model has "
        "none; choose adaptation=bn or tent, or none"
    )


def _classified(network: Matched, layer: nn.Linear, features: Tensor, logits: Tensor) -> Classified:
    """Collect what a linear classifier made of a batch, for the classes of the dataset."""
    dtype = logits.dtype
    weight = network.of_classes(layer.weight.detach().T).T
    bias = None
    if layer.bias is not None:
        bias = network.of_classes(layer.bias.detach()[None])[0].to(dtype)
    return Classified(features.to(dtype), logits, weight.to(dtype), bias)

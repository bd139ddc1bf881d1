"""BatchNorm with the statistics of the batch it sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from dgbench.errors import ConfigError
from dgbench.trained.adaptation.contract import Adaptation, Adapter
from dgbench.trained.adaptation.norms import batch_norms, use_batch_statistics
from dgbench.trained.matched import Matched
from dgbench.validation import Refusal


class BatchNormStatistics(Adaptation):
    """Replace BatchNorm's running statistics by those of the test batch (Schneider et al., 2020).

    A prior of N images keeps a share of the statistics of training. With those of training m_s and
    v_s, and of a batch of n images m_t and v_t, a layer normalizes with

        m = N / (N + n) m_s + n / (N + n) m_t,    v = N / (N + n) v_s + n / (N + n) v_t.

    As in the authors' code, v_t is the unbiased variance if N > 0, and the biased one if N = 0,
    where BatchNorm computes as in training. Nothing is carried from batch to batch.

    Source: https://arxiv.org/abs/2006.16971, equation 3; github.com/bethgelab/robustness.

    Args:
        prior: N; infinity leaves the model as it is.
    """

    prior: Annotated[float, Field(ge=0), Refusal("is not a number >= 0", "0 has no prior")]

    def check(self, network: Matched, image: Sequence[int]) -> None:
        if not batch_norms(network):
            raise ConfigError(
                "adaptation=bn replaces statistics of BatchNorm, and this network has none; choose "
                "adaptation=t3a, or none"
            )

    def least_images(self, network: Matched) -> int:
        return 2

    def start(self, network: Matched) -> Adapter:
        if self.prior == 0:
            use_batch_statistics(network)
            return network
        for layer in batch_norms(network):
            if layer.running_mean is not None and layer.running_var is not None:
                layer.register_forward_pre_hook(
                    _Mixing(self.prior, layer.running_mean, layer.running_var)
                )
        return network


class _Mixing:
    """Sets a layer's statistics to the mixture for what it is about to normalize."""

    def __init__(self, prior: float, mean: Tensor, variance: Tensor) -> None:
        self.prior = prior
        self.mean = mean
        self.variance = variance

    def __call__(self, layer: Any, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0].to(self.mean.dtype)
        mean, variance = mixed_statistics(x, self.mean, self.variance, self.prior)
        layer.running_mean = mean
        layer.running_var = variance


def mixed_statistics(
    x: Tensor, mean: Tensor, variance: Tensor, prior: float
) -> tuple[Tensor, Tensor]:
    """Mix (C,) mean and variance of training with those of n images, of shape (n, C, ...).

    Args:
        x: what a layer normalizes.
        mean: of training.
        variance: of training.
        prior: N > 0, how many images those of training count for.
    """
    other_axes = [0, *range(2, x.dim())]
    test_variance, test_mean = torch.var_mean(x, other_axes)
    share = 1 / (1 + len(x) / prior)
    return (
        share * mean + (1 - share) * test_mean,
        share * variance + (1 - share) * test_variance,
    )

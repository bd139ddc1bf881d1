"""Sample weights under which features are uncorrelated after random nonlinear functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

MOMENTUM = 0.9


@dataclass(frozen=True)
class WeightLearning:
    """How the weights are learned: inner steps of SGD with momentum 0.9.

    Args:
        w: (I, F) random factors of F functions, in each of I inner steps.
        b: (I, m, F) random shifts in [0, 1), of the period.
        dependence: weight of the dependence between features.
        power: exponent of the weights in the term that keeps them even.
        scale: factor of the whole loss.
        lr: learning rate of the first half of the inner steps; a tenth of it in the second.
        together: the cosine and the sine of a function are added, instead of being two functions.
    """

    w: Tensor
    b: Tensor
    dependence: Tensor
    power: Tensor
    scale: Tensor
    lr: Tensor
    together: bool

    def learn(self, features: Tensor, past: Tensor) -> Tensor:
        """Weights before their softmax, (B,) of the first B rows.

        Args:
            features: (B + M, m), of the minibatch and of a memory.
            past: (M,) weights of the memory before the softmax.
        """
        inner = len(self.w)
        v = torch.ones_like(features[:, 0])[: len(features) - len(past)]
        speed = torch.zeros_like(v)
        for e in range(inner):
            slices = random_functions(features, self.w[e], 2 * math.pi * self.b[e], self.together)
            speed = MOMENTUM * speed + self._slope(slices, v, past)
            v = v - self.lr * 0.1 ** (2 * e // inner) * speed
        return v

    def _slope(self, slices: Tensor, v: Tensor, past: Tensor) -> Tensor:
        """(B,) derivative of the loss with respect to ``v``."""
        n = len(v)
        weight, own = torch.cat([v, past]).softmax(0), v.softmax(0)
        each = dependence_slope(slices, weight)
        dependence = weight[:n] * (each[:n] - (weight * each).sum())
        power = own**self.power
        even = self.power * (power - own * power.sum())
        return self.scale * (dependence / self.dependence + even)


def random_functions(features: Tensor, w: Tensor, b: Tensor, together: bool) -> Tensor:
    """(R, m) features, factors w (F,) and shifts b (m, F) -> (slices, R, m), cosines and sines of random functions.

    The arguments of each row lie between 0 and pi/2, its least and its largest.
    """
    angle = features * w[:, None, None] + b.T[:, None]  # (F, R, m)
    angle = angle - angle.amin(2, keepdim=True)
    angle = angle / angle.amax(2, keepdim=True) * (math.pi / 2)
    parts = angle.cos(), angle.sin()
    return math.sqrt(2 / len(w)) * (parts[0] + parts[1] if together else torch.cat(parts))


def dependence_slope(slices: Tensor, weight: Tensor) -> Tensor:
    """(R,) derivative of the dependence with respect to the weights (R,) of the rows of (slices, R, m).

    The dependence is the summed squares of the covariances between different features. Its derivative is
    2 (S_i' C S_i - 2 S_i' C mu), C the covariance without its diagonal: from an m x m matrix where features are fewer
    than rows, otherwise from an R x R one, the products of rows.
    """
    if slices.shape[2] < slices.shape[1]:
        return _slope_of_few_features(slices, weight)
    mean = weight @ slices  # (slices, m)
    variance = weight @ slices.square() - mean.square()
    products = slices @ slices.mT  # (slices, R, R)
    k = products @ weight
    quadratic = products.square() @ weight - k.square() - _dot(slices.square(), variance)
    linear = _dot(products, weight * k) - (k @ weight)[:, None] * k - _dot(slices, variance * mean)
    return 2 * (quadratic - 2 * linear).sum(0)


def _slope_of_few_features(slices: Tensor, weight: Tensor) -> Tensor:
    mean = weight @ slices
    covariance = (slices * weight[:, None]).mT @ slices - mean[:, :, None] * mean[:, None]
    projected = slices @ (covariance - covariance.diagonal(dim1=1, dim2=2).diag_embed())
    return 2 * ((projected * slices).sum(2) - 2 * _dot(projected, mean)).sum(0)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """(S, R, n) with (S, n) -> (S, R)."""
    return (a @ b[:, :, None])[:, :, 0]

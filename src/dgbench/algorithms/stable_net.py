"""StableNet: sample weights under which random functions of the features are uncorrelated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import Networks
from dgbench.errors import ConfigError
from dgbench.network_specs import LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, Choices, ParamGroup
from dgbench.objectives.step import Normal, Outcome, RandomInputs, Step, Uniform, epoch_of

MOMENTUM = 0.9


class StableNet(Algorithm):
    """Weight the images so that features are independent of one another
    (Zhang et al., 2021; the authors' code).

    The objective is L = sum_i w_i CE_i with w = softmax(v) over the minibatch, a constant for the
    gradient. In every step v starts at ones and takes ``epochb`` steps of SGD (momentum 0.9, rate
    ``lrbl``, a tenth of it in the second half) on

        dependence / lambdap + sum_i w_i^decay_pow.

    The dependence is that between features after random cosines and sines (``num_f`` of each;
    ``sum``: added): their summed squared covariances under weights softmax([v; u]) over the
    minibatch and a memory of features and of their v, a running mean in the first ``warm_steps``
    steps, from then on ``presave_ratio`` of the past.

    The gradient with respect to v is written out, O((B + memory)^2 m) per inner step. With
    ``lambdap`` 70 the weights stay within about 1e-4 of equal ones in small problems. Weights sum
    to 1 (the paper's to the number of images), and there is one memory (the paper fuses several):
    the code's form. ``optimizer=sgd`` (momentum 0.9) and ``decay_lr=quarter_cosine`` are the
    authors' settings; their code keeps the best test accuracy.
    """

    static = frozenset({"n_feature", "epochb", "num_f", "warm_steps", "epochs"})
    choices: ClassVar[Choices] = {
        "sum": (True, False),
        "optimizer": ("adam", "sgd"),
        "decay_lr": ("none", "quarter_cosine"),
    }
    why_not_in_parts = "each part of a minibatch would learn weights of its own"

    draws_environments = True  # its memory holds rows of earlier steps, of whichever environments

    @classmethod
    def check(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        super().check(sizes, hparams)
        if sizes.n_features < 2:
            raise ConfigError(
                "StableNet compares features with one another; give the featurizer at least 2 "
                "features"
            )

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        return {"classifier": LinearSpec(sizes.n_features, sizes.n_classes, xavier_gain=0.1)}

    def param_groups(self) -> dict[str, ParamGroup]:
        return {
            "model": ParamGroup(("featurizer", "classifier"), optimizer=self.values["optimizer"])
        }

    def lr_factor(self, group: str, step: int) -> float:
        if self.values["decay_lr"] == "none":
            return 1.0
        epochs = self.values["epochs"]
        epoch = epoch_of(step, epochs, self.sizes.n_steps)
        return (0.01 + math.cos(math.pi / 2 * epoch / epochs)) / 1.01

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        n = self.values["n_feature"] or self.values["batch_size"] * self.sizes.n_envs
        return {"features": torch.zeros(n, self.sizes.n_features), "weights": torch.ones(n)}

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        inner = self.values["epochb"]
        functions = self.values["num_f"]
        shifts = (inner, self.sizes.n_features, functions)
        return {
            "w": Normal((inner, functions), "factor of each random function, in each inner step"),
            "b": Uniform(shifts, "its shifts, in parts of the period"),
        }

    def objective(self, s: Step) -> Outcome:
        z = s.features()
        new = z.detach()
        v = self._learning(s).learn(torch.cat([new, s.state["features"]]), s.state["weights"])
        weight = v.softmax(0)
        losses = F.cross_entropy(s.networks.classifier(z), s.y, reduction="none")
        logs = {"largest_weight": len(weight) * weight.max()}
        state = {
            "features": self._remembered(s, "features", new),
            "weights": self._remembered(s, "weights", v),
        }
        return Outcome((weight * losses).sum(), logs, state)

    def _learning(self, s: Step) -> WeightLearning:
        epoch = epoch_of(s.step, self.values["epochs"], self.sizes.n_steps)
        drops = torch.floor(epoch / s.hp.lambda_decay_epoch)
        return WeightLearning(
            w=s.random["w"],
            b=s.random["b"],
            dependence=s.hp.lambdap * (s.hp.lambda_decay_rate**drops).clamp(min=0.01),
            power=s.hp.decay_pow,
            scale=torch.where(epoch == 0, s.hp.first_step_cons, 1.0),
            lr=s.hp.lrbl,
            together=self.values["sum"],
        )

    def _remembered(self, s: Step, key: str, new: Tensor) -> Tensor:
        """Mix this step's rows into the first places of the memory."""
        past = s.state[key]
        n = min(len(past), len(new))
        t = s.step.to(past.dtype)
        keep = torch.where(s.step < self.values["warm_steps"], t / (t + 1), s.hp.presave_ratio)
        return torch.cat([keep * past[:n] + (1 - keep) * new[:n], past[n:]])


@dataclass(frozen=True)
class WeightLearning:
    """The inner steps of SGD, with momentum 0.9, that learn the weights of images."""

    w: Tensor  #: (I, F) random factors of F functions, in each of I inner steps
    b: Tensor  #: (I, m, F) random shifts in [0, 1), of the period
    dependence: Tensor  #: what the dependence between features is divided by
    power: Tensor  #: exponent of the weights in the term that keeps them even
    scale: Tensor  #: factor of the whole loss
    lr: Tensor  #: learning rate of the first half of the inner steps; a tenth of it in the second
    together: bool  #: the cosine and the sine of a function are added, instead of two functions

    def learn(self, features: Tensor, past: Tensor) -> Tensor:
        """Learn the (B,) weights of the first B rows, before their softmax.

        Args:
            features: (B + M, m), of the minibatch and of a memory.
            past: (M,) weights of the memory before the softmax.
        """
        inner = len(self.w)
        v = torch.ones_like(features[:, 0])[: len(features) - len(past)]
        velocity = torch.zeros_like(v)
        for e in range(inner):
            slices = random_functions(features, self.w[e], 2 * math.pi * self.b[e], self.together)
            velocity = MOMENTUM * velocity + self._slope(slices, v, past)
            v = v - self.lr * 0.1 ** (2 * e // inner) * velocity
        return v

    def _slope(self, slices: Tensor, v: Tensor, past: Tensor) -> Tensor:
        """Compute the (B,) derivative of the loss with respect to ``v``."""
        n = len(v)
        weight = torch.cat([v, past]).softmax(0)
        share = v.softmax(0)
        slopes = dependence_slope(slices, weight)
        dependence = weight[:n] * (slopes[:n] - (weight * slopes).sum())
        power = share**self.power
        even = self.power * (power - share * power.sum())
        return self.scale * (dependence / self.dependence + even)


def random_functions(features: Tensor, w: Tensor, b: Tensor, together: bool) -> Tensor:
    """Map features to the (slices, R, m) random cosines and sines of each.

    The arguments of each row are rescaled so that the smallest is 0 and the largest pi/2.

    Args:
        features: (R, m).
        w: (F,) factors.
        b: (m, F) shifts.
        together: add the cosine and the sine of a function, F slices instead of 2 F.
    """
    angle = features * w[:, None, None] + b.T[:, None]  # (F, R, m)
    angle = angle - angle.amin(2, keepdim=True)
    angle = angle / angle.amax(2, keepdim=True) * (math.pi / 2)
    cosines = angle.cos()
    sines = angle.sin()
    slices = cosines + sines if together else torch.cat([cosines, sines])
    return math.sqrt(2 / len(w)) * slices


def dependence_slope(slices: Tensor, weight: Tensor) -> Tensor:
    """Compute the dependence's (R,) derivative with respect to the weights of the rows.

    The dependence is the summed squares of the covariances between different features. Its
    derivative is

        2 (S_i' C S_i - 2 S_i' C mu),

    with C the covariance without its diagonal. It comes from an m x m matrix where features are
    fewer than rows, otherwise from an R x R one, the products of rows.

    Args:
        slices: (slices, R, m) functions of the features.
        weight: (R,), of the rows.
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
    """Multiply (S, R, n) with (S, n) to (S, R)."""
    return (a @ b[:, :, None])[:, :, 0]

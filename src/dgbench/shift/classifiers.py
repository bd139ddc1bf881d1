"""Classifiers that estimators of dataset shift train: of environments, of labels, and of both.

They are algorithms as any other, pure objectives that train alone or as a stack. Their "training
environments" are the two sides of a pair, p and q; a classifier of labels alone may have a single
one.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dgbench.containers import AnyNetworks
from dgbench.network_specs import LinearSpec, MLPSpec, NetworkSpec, Sizes
from dgbench.objectives.contract import Algorithm, ParamGroup
from dgbench.objectives.step import Outcome, Prediction, Step


class ShiftClassifier(Algorithm):
    """Minimizes the mean cross entropy of some target over the minibatches of both sides."""

    @abstractmethod
    def outputs(self, networks: AnyNetworks, x: Tensor) -> Tensor:
        """Map (n, ...) images or features to the (n, c) outputs that an estimator works with."""

    @abstractmethod
    def judged(self, outputs: Tensor, y: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        """Map (n, c) outputs, (n,) labels and (n,) sides, 0 for p and 1 for q, to (n, t) logits and
        (n,) targets.
        """

    def objective(self, s: Step) -> Outcome:
        return Outcome(F.cross_entropy(*self.judged(self.outputs(s.networks, s.x), s.y, s.env)))

    def predict(self, s: Prediction) -> Tensor:
        return self.outputs(s.networks, s.x)


class TargetClassifier(ShiftClassifier):
    """A perceptron on the features, with ``hidden`` layers of ``width`` units.

    Subclasses name its target.
    """

    static = frozenset({"width", "hidden"})

    @classmethod
    def n_targets(cls, sizes: Sizes) -> int:
        """Count the values of the target."""
        raise NotImplementedError

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        n = cls.n_targets(sizes)
        m = sizes.n_features
        hidden = hparams["hidden"]
        return {
            "classifier": MLPSpec(m, n, hparams["width"], hidden + 1)
            if hidden
            else LinearSpec(m, n)
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        return {"model": ParamGroup(("featurizer", "classifier"), optimizer="adamw")}

    def outputs(self, networks: AnyNetworks, x: Tensor) -> Tensor:
        return networks.logits(x)


class JointClassifier(TargetClassifier):
    """Predicts environment and label together: target e K + y, 2K values."""

    @classmethod
    def n_targets(cls, sizes: Sizes) -> int:
        return 2 * sizes.n_classes

    def judged(self, outputs: Tensor, y: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        return outputs, side * self.sizes.n_classes + y


class LabelClassifier(TargetClassifier):
    """Predicts the label."""

    @classmethod
    def n_targets(cls, sizes: Sizes) -> int:
        return sizes.n_classes

    def judged(self, outputs: Tensor, y: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        return outputs, y


class SideClassifier(TargetClassifier):
    """Predicts the environment, p or q."""

    @classmethod
    def n_targets(cls, sizes: Sizes) -> int:
        return 2

    def judged(self, outputs: Tensor, y: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        return outputs, side


class BottleneckClassifier(ShiftClassifier):
    """Predicts the environment from features and label through a bottleneck (Ye et al. 2022,
    Algorithm 1).

    z = W_g phi(x) + b_g in R^m, w = W_y onehot(y) + b_y, logits = W_h (z * w) + b_h; the features
    of interest are z. All three layers start Xavier-uniform with zero bias, as in the authors'
    code.

    The learning rate falls along half a cosine from 1 to 1/2 of the given one in the first
    ``decay_steps`` steps, and stays there; it is constant where those are 0.
    """

    static = frozenset({"bottleneck", "optimizer", "decay_steps"})

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        m = hparams["bottleneck"]
        return {
            "reducer": LinearSpec(sizes.n_features, m, 1.0),
            "label_map": LinearSpec(sizes.n_classes, m, 1.0),
            "classifier": LinearSpec(m, 2, 1.0),
        }

    def param_groups(self) -> dict[str, ParamGroup]:
        networks = ("featurizer", "reducer", "label_map", "classifier")
        return {"model": ParamGroup(networks, optimizer=self.values["optimizer"])}

    def lr_factor(self, group: str, step: int) -> float:
        decay: int = self.values["decay_steps"]
        return 0.75 + 0.25 * math.cos(math.pi * min(step, decay) / decay) if decay else 1.0

    def outputs(self, networks: AnyNetworks, x: Tensor) -> Tensor:
        """Map (n, ...) images or features to (n, m + 2K) outputs: z, then the logits of p and q for
        every label.
        """
        z = networks.reducer(networks.featurizer(x))
        maps = networks.label_map(torch.eye(self.sizes.n_classes, dtype=z.dtype, device=z.device))
        logits = networks.classifier(z[:, None] * maps)
        return torch.cat([z, logits.flatten(1)], 1)

    def judged(self, outputs: Tensor, y: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
        logits = outputs[:, self.values["bottleneck"] :].view(len(y), -1, 2)
        return logits.gather(1, y[:, None, None].expand(-1, 1, 2)).squeeze(1), side

"""The contract of every algorithm: a pure objective and what it declares.

An algorithm sees the networks, one minibatch per training environment, its hyperparameters, its own state,
random numbers drawn for it and the step, and returns an :class:`~dgbench.types.Outcome`. It owns no loop, device,
logger or generator, and never branches on data, so ``torch.func.vmap`` can map it over many members.

``conf/algorithm/NAME.yaml`` holds, beside ``_target_`` and ``name``:

- ``hparams``: the default of every hyperparameter that the algorithm reads. ``lr``, ``weight_decay`` and
  ``batch_size`` come from the shared ones unless they stand here.
- ``search``: for each space (``domainbed``, ``ood_bench``, ``yu2024``) how a hyperparameter is drawn; one that a
  space leaves out keeps its default.

A value or distribution that differs between small images (28 x 28) and large ones is written
``{small: ..., large: ...}``. A distribution is a mapping with one key; with u ~ U(a, b) and int() truncating:

=====================  ================================================================================
``uniform``            [a, b]: u
``log10_uniform``      [a, b]: 10^u
``log_uniform``        [a, b]: the same given by its bounds, 10^U(log10 a, log10 b)
``int_uniform``        [a, b]: int(u)
``int_log10_uniform``  [a, b]: int(10^u)
``int_log2_uniform``   [a, b]: int(2^u)
``randint``            [a, b]: an integer from a to b - 1
``choice``             [v1, v2, ...]: one of them
=====================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from dgbench.errors import ConfigError
from dgbench.types import EnvBatch, LinearSpec, Networks, NetworkSpec, Outcome, Phase, Player, Sizes, Tensors

Choices = Mapping[str, tuple[Any, ...]]  # allowed values by hyperparameter


class Objective:
    """What a subclass of :class:`~dgbench.algorithms.base.Algorithm` may say; only ``objective`` must be said.

    Attributes:
        static: hyperparameters that decide shapes or the schedule; they stay Python values in ``self.values``,
            all others reach the objective as 0-dimensional tensors, one per member when members are stacked.
        off_at_zero: hyperparameters whose term an objective may leave out when ``self.values`` holds 0 for them;
            members of a stack agree on which.
        why_not_cacheable: why training on features of a frozen part of the featurizer, computed once per image, would
            not be this method; empty where it is.
        extra_channels: image channels that the algorithm adds in front of the featurizer.
        reset_at: hyperparameter that holds the step at which Adam is re-created (moments and counter zero).
        reset_lr: hyperparameter that holds the learning rate from then on, if it changes.
        choices: allowed values of the static hyperparameters that are switches.
        min_envs: least number of training environments for which the method has a meaning.
        order_matters: the loss of one step depends on the order of the environments, because outputs or random
            numbers belong to positions; its distribution over seeds does not.
        stackable: ``vmap`` can map the objective over members; ``why_not_stackable`` says why not.
    """

    static: ClassVar[frozenset[str]] = frozenset()
    off_at_zero: ClassVar[frozenset[str]] = frozenset()
    choices: ClassVar[Choices] = {}
    min_envs: ClassVar[int] = 1
    order_matters: ClassVar[bool] = False
    stackable: ClassVar[bool] = True
    why_not_stackable: ClassVar[str] = ""
    why_not_cacheable: ClassVar[str] = ""
    extra_channels: ClassVar[int] = 0
    reset_at: ClassVar[str | None] = None
    reset_lr: ClassVar[str | None] = None

    @classmethod
    def check(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        """Refuse what cannot work, before anything is trained.

        Raises:
            ConfigError: too few training environments, or a switch with an unknown value.
        """
        if sizes.n_envs < cls.min_envs:
            raise ConfigError(
                f"{cls.__name__} has no meaning with {sizes.n_envs} training environment(s); "
                f"give it at least {cls.min_envs} or choose another algorithm"
            )
        for key, allowed in cls.choices.items():
            if hparams[key] not in allowed:
                options = ", ".join(str(value) for value in allowed)
                raise ConfigError(f"algorithm.hparams.{key}={hparams[key]} is unknown; choose one of {options}")

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        """Networks besides the featurizer, in construction order."""
        return {"classifier": LinearSpec(sizes.n_features, sizes.n_classes)}

    @classmethod
    def group_size(cls, hparams: Mapping[str, Any]) -> int:
        """Images whose predictions depend on one another; 0 where each image is predicted by itself.

        Such a method must be scored on what its environment shows, image for image: the expected error over a
        spurious feature cannot be put together from passes in which all images have it.
        """
        return 0

    def players(self) -> dict[str, Player]:
        """Who is updated by which optimizer."""
        return {"model": Player(("featurizer", "classifier"))}

    def phases(self, step: int) -> Sequence[Phase]:
        """The updates of one step, in order; may depend on the step and on static hyperparameters only."""
        return (Phase(self.objective, ("model",)),)

    def initial_state(self, sizes: Sizes) -> dict[str, Tensor]:
        """State before the first step."""
        return {}

    def draw_noise(
        self, rng: np.random.Generator, steps: int, sizes: tuple[int, ...], hparams: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Random numbers for ``steps`` steps on minibatches of ``sizes``; axis 0 of each array is the step."""
        return {}

    def scoring_noise(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        """Random numbers for :meth:`predict`, for methods whose prediction is random; axis 0 is the n images."""
        return {}

    def objective(
        self, nets: Networks, batch: EnvBatch, hp: Tensors, state: Tensors, noise: Tensors, step: Tensor
    ) -> Outcome:
        """The loss of one step; see the module's docstring. ``step`` counts from 0."""
        raise NotImplementedError(f"{type(self).__name__} needs an objective")

    def predict(self, nets: Networks, x: Tensor, hp: Tensors, state: Tensors, noise: Tensors) -> Tensor:
        """(n, C, H, W) -> (n, K) logits."""
        return nets.logits(x)

"""The contract of every algorithm: a pure objective and what it declares.

An algorithm is a plain object. Its objective is given a :class:`~dgbench.objectives.step.Step`
(networks, one minibatch per training environment, hyperparameters, its own state, random inputs,
the step's number) and returns an :class:`~dgbench.objectives.step.Outcome`. It owns no network,
loop, device, logger or generator and never branches on data, so ``torch.func.vmap`` can map it over
many runs. ``dgbench.training.modules`` trains it.

``conf/algorithm/NAME.yaml`` holds, beside ``_target_``, ``objective`` (the class) and ``name``:

- ``hparams``: the default of every hyperparameter that the algorithm reads. ``lr``,
  ``weight_decay`` and ``batch_size`` come from the shared ones unless they stand here.
- ``search``: for each space (``domainbed``, ``ood_bench``, ``yu2024``) how a hyperparameter is
  drawn; one that a space leaves out keeps its default.

A value or distribution that differs between small images (28 x 28) and large ones is written
``{small: ..., large: ...}``. A distribution is a mapping with one key; with u ~ U(a, b) and int()
truncating:

=====================  =======================================================================
``uniform``            [a, b]: u
``log10_uniform``      [a, b]: 10^u
``log_uniform``        [a, b]: the same given by its bounds, 10^U(log10 a, log10 b)
``int_uniform``        [a, b]: int(u)
``int_log10_uniform``  [a, b]: int(10^u)
``int_log2_uniform``   [a, b]: int(2^u)
``randint``            [a, b]: an integer from a to b - 1
``choice``             [v1, v2, ...]: one of these values
=====================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from dgbench.containers import Networks
from dgbench.errors import ConfigError
from dgbench.network_specs import FeaturizerSpec, LinearSpec, NetworkSpec, Sizes
from dgbench.objectives.step import (
    Outcome,
    Prediction,
    RandomInputs,
    Step,
    Surveyed,
    UpdateFunction,
)

Choices = Mapping[str, tuple[Any, ...]]  # allowed values by hyperparameter


@dataclass(frozen=True)
class ParamGroup:
    """Networks that are updated together by one optimizer."""

    networks: tuple[str, ...]  #: names of the networks it owns
    #: names of the hyperparameters that hold its learning rate and its weight decay, which is
    #: L2-coupled but for ``adamw``
    lr: str = "lr"
    weight_decay: str = "weight_decay"
    #: name of the hyperparameter that holds Adam's beta1, or the number itself
    beta1: str | float = 0.9
    beta2: float = 0.999  #: Adam's beta2
    #: name of the hyperparameter p that pulls the networks back; after the last update of a step
    #: their parameters and buffers become v0 + p (v - v0), v0 being what they were at the start of
    #: the step
    pull: str | None = None
    #: ``adam``; ``adamw``, with decoupled weight decay; or ``sgd`` with momentum 0.9
    optimizer: str = "adam"
    nesterov: bool = False  #: Nesterov's momentum, for ``sgd``


@dataclass(frozen=True)
class Update:
    """One loss and the parameter groups that step on its gradient.

    A step runs its updates in order.
    """

    #: a method of the algorithm, the same one at every step; it is compared, and recorded, by it
    objective: UpdateFunction
    #: names of the parameter groups; without any the objective is evaluated for its state and logs,
    #: and its loss is not kept
    groups: tuple[str, ...]


class Algorithm:
    """Base class of all algorithms; a subclass must implement :meth:`objective` and may say more.

    Args:
        sizes: numbers of classes, features and training environments, image shape.
        hparams: every hyperparameter, ``lr`` and ``weight_decay`` included.

    Attributes:
        values: the hyperparameters as Python values.
        static: hyperparameters that decide shapes or the schedule; an objective reads them from
            ``self.values``, all others reach it as 0-dimensional tensors, one per run when runs are
            stacked.
        off_at_zero: hyperparameters whose term an objective may leave out when ``self.values``
            holds 0 for them; runs of a stack agree on which.
        why_not_cacheable: why training on features of a frozen part of the featurizer, computed
            once per image, would not be this method; "" if it is.
        why_not_vectors: what it needs pictures for, and cannot do with vectors of features
            (``dataset=features``); "" if it trains on both.
        why_not_sharp: why it cannot be trained sharpness-aware (``conf/sharpness``): its update is
            no gradient of one loss, because it makes gradients itself or its networks follow
            different losses in one update; "" if it can.
        why_not_low_rank: why it would be another method on a network of which low-rank parts are
            trained (``tuning=lora``), because it makes gradients of single weights itself; "" if it
            would not.
        why_not_in_parts: why minibatches cannot be cut into parts that are evaluated on their own
            (``trainer.accumulate``, ``trainer.devices``); "" if they can, as a method of smaller
            minibatches.
        extra_channels: image channels that the algorithm adds in front of the featurizer.
        reset_adam_at: hyperparameter, or several, that hold the step at which the optimizers are
            re-created (moments and counters zero).
        reset_lr: hyperparameter that holds the learning rate from the (first) reset on, if it
            changes.
        choices: allowed values of hyperparameters that are switches; those are static too.
        min_envs: least number of training environments for which the method has a meaning.
        draws_environments: whether steps may draw some of the training environments
            (``trainer.environments_per_step``); None: they may unless networks or state have a part
            for each one.
        pools: whether its loss is the mean over all images of a step, whatever environment they are
            of, so that they may be drawn from all environments together
            (``trainer.sampling=pooled``).
        stackable: ``vmap`` can map the objective over runs.
        why_not_stackable: why it cannot.

    Raises:
        ConfigError: what :meth:`check` refuses.
    """

    static: ClassVar[frozenset[str]] = frozenset()
    off_at_zero: ClassVar[frozenset[str]] = frozenset()
    choices: ClassVar[Choices] = {}
    min_envs: ClassVar[int] = 1
    draws_environments: ClassVar[bool | None] = None
    pools: ClassVar[bool] = False
    stackable: ClassVar[bool] = True
    why_not_stackable: ClassVar[str] = ""
    why_not_cacheable: ClassVar[str] = ""
    why_not_vectors: ClassVar[str] = ""
    why_not_sharp: ClassVar[str] = ""
    why_not_low_rank: ClassVar[str] = ""
    why_not_in_parts: ClassVar[str] = ""
    extra_channels: ClassVar[int] = 0
    reset_adam_at: ClassVar[str | tuple[str, ...] | None] = None
    reset_lr: ClassVar[str | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.static = cls.static.union(cls.choices)

    def __init__(self, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        self.check(sizes, hparams)
        self.sizes = sizes
        self.values = dict(hparams)

    @classmethod
    def check(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> None:
        """Refuse settings that cannot work, before anything is trained.

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
                raise ConfigError(
                    f"hparams.{key}={hparams[key]} is unknown; choose one of {options}"
                )

    @classmethod
    def caution(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> str:
        """Return one line that warns of values that are allowed but of little use, else ""."""
        return ""

    @classmethod
    def networks_needed(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> dict[str, NetworkSpec]:
        """List the networks that are needed besides the featurizer, in construction order."""
        return {"classifier": LinearSpec(sizes.n_features, sizes.n_classes)}

    @classmethod
    def featurizers(cls, sizes: Sizes, hparams: Mapping[str, Any]) -> tuple[str, ...]:
        """Name the featurizer and the further featurizers that :meth:`networks_needed` lists."""
        needed = cls.networks_needed(sizes, hparams)
        further = [name for name, spec in needed.items() if isinstance(spec, FeaturizerSpec)]
        return ("featurizer", *further)

    @classmethod
    def resets(cls) -> tuple[str, ...]:
        """List the hyperparameters that :attr:`reset_adam_at` names."""
        named = cls.reset_adam_at
        if named is None:
            return ()
        return (named,) if isinstance(named, str) else named

    @classmethod
    def group_size(cls, hparams: Mapping[str, Any]) -> int:
        """Count the images whose predictions depend on one another.

        Return 0 if each image is predicted by itself. A method that returns more must be scored on
        the images as its environment mixes them: the expected error over a spurious feature cannot
        be put together from eval sets in which all images have it.
        """
        return 0

    def param_groups(self) -> dict[str, ParamGroup]:
        """Group the networks by the optimizer that updates them."""
        return {"model": ParamGroup(("featurizer", "classifier"))}

    def updates(self, step: int) -> Sequence[Update]:
        """List the updates of one step, in order.

        They may depend on the step and on static hyperparameters only.
        """
        return (Update(self.objective, ("model",)),)

    def lr_factor(self, group: str, step: int) -> float:
        """Compute the factor of a group's learning rate.

        It may depend on the step and on static hyperparameters only.
        """
        return 1.0

    def initial_state(self, networks: Networks) -> dict[str, Tensor]:
        """Build the state before the first step, given the networks with their initial weights."""
        return {}

    def random_inputs(self, sizes: tuple[int, ...]) -> RandomInputs:
        """Describe the random inputs of a step on minibatches of these sizes.

        The objective finds them in ``s.random``.
        """
        return {}

    def prediction_inputs(self, n: int) -> RandomInputs:
        """Describe the random inputs of :meth:`predict` for ``n`` images.

        Axis 0 of each is the images.
        """
        return {}

    def objective(self, s: Step) -> Outcome:
        """Compute one step's loss; see the module's docstring.

        Other update functions have the same signature.
        """
        raise NotImplementedError(f"{type(self).__name__} needs an objective")

    def per_image(self, s: Prediction) -> Tensor:
        """Compute the (n, ...) part of :meth:`predict` that depends on each of n images alone.

        A method that predicts groups may implement it. Where many environments show the same
        pictures, each in groups of its own, it is then computed once per picture and reaches
        :meth:`predict` as ``s.per_image``.
        """
        raise NotImplementedError(
            f"{type(self).__name__} computes nothing of each image alone; implement per_image"
        )

    def predict(self, s: Prediction) -> Tensor:
        """Compute the (n, K) logits of (n, C, H, W) images."""
        return s.networks.logits(s.x)

    def survey_due(self, step: int) -> bool:
        """Decide whether to survey the run's training images before this step.

        It may depend on sizes, the step and static hyperparameters only.
        """
        return False

    def survey(self, s: Prediction) -> Tensor:
        """Compute the (n, ...) values of (n, C, H, W) training images that :meth:`digest` needs.

        The images are not augmented.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a survey")

    def digest(self, survey: Surveyed) -> dict[str, Tensor]:
        """Compute the new state after a survey.

        This is ordinary code for one run at a time, never mapped by ``vmap``.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a digest")

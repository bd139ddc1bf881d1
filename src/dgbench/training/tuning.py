"""What of a network is trained: fine-tuning, linear probing, frozen stages (Yu et al., 2024)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from torch import nn

from dgbench.containers import Networks
from dgbench.errors import ConfigError
from dgbench.plan.settings import TuningSettings

ALL = "all"


class Stage(Protocol):
    """A part of a featurizer that is frozen as a whole."""

    modules: tuple[nn.Module, ...]
    parameters: Callable[[], Iterator[nn.Parameter]]


class Tuning(TuningSettings):
    """Freezes the beginning of the featurizer, or trains what stands behind it first.

    What is frozen takes no gradient, is in no optimizer and under no weight decay, and computes as in evaluation:
    BatchNorm uses the statistics of its initial weights, dropout is off.

    Args:
        name: what rows and folders call it.
        freeze_stages: 0 trains everything, k freezes the stem and the first k stages, ``all`` the whole featurizer
            with the dropout on its features (linear probing).
        cache_features: compute what is frozen once per image and train on that.
        cache_gb: largest size of these features, gigabytes.
        cache_dir: folder of a file that holds them; None keeps them in memory only.
        head_steps: first steps, in which only what stands behind the featurizer learns (LP-FT, Kumar et al., 2022).
        head_lr: learning rate of those steps; None takes that of the algorithm.
        layer_decay: factor between the learning rates of parts of the featurizer that follow one another (blocks of a
            transformer, stages of other networks), from the last part down; None: all learn alike.
    """

    def check(self, steps: int) -> None:
        """Refuse what does not go with that many optimizer steps.

        Raises:
            ConfigError: the head takes all of them.
        """
        if 0 < steps <= self.head_steps:
            raise ConfigError(
                f"tuning.head_steps={self.head_steps} leaves none of trainer.steps={steps} for the rest; "
                "lower it, or set tuning=lp to train the classifier alone"
            )

    def check_network(self, featurizer: nn.Module) -> None:
        """Refuse a featurizer that cannot be frozen as it is built.

        Raises:
            ConfigError: with the reason.
        """
        reason = getattr(featurizer, "why_not_frozen", None)
        if reason and self.freeze_stages != 0:
            raise ConfigError(f"tuning={self.name} cannot freeze this backbone: {reason}, or tuning=ft")

    def count(self, stages: int) -> int:
        """How many of ``stages`` stages are frozen.

        Raises:
            ConfigError: more than there are, or all of them, which is linear probing.
        """
        if self.freeze_stages == ALL:
            return stages
        if int(self.freeze_stages) >= stages:
            raise ConfigError(
                f"tuning.freeze_stages={self.freeze_stages} leaves nothing to train of a {stages}-stage backbone; "
                f"give at most {stages - 1}, or tuning=lp to train the classifier alone"
            )
        return int(self.freeze_stages)

    def freeze(self, networks: Networks, name: str, stages: Sequence[Stage]) -> None:
        """Freeze what is to stand still of the featurizer of this name, which has these stages.

        Raises:
            ConfigError: the featurizer has not that many stages.
        """
        count = self.count(len(stages))
        if self.freeze_stages == ALL:
            networks.freeze([networks[name]], networks[name].parameters())
        for stage in stages[:count]:
            networks.freeze(stage.modules, stage.parameters())

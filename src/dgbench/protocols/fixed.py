"""The fixed split: one model, named training, validation and test environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgbench.errors import ConfigError
from dgbench.protocols.environment_names import environments
from dgbench.protocols.folds import Fold, Protocol


@dataclass(frozen=True, kw_only=True)
class Fixed(Protocol):
    """One fold (Ye et al. 2022, appendix G).

    Args:
        train: environments to train on; None takes all others.
        test: environments to test in.
        val: environments that only choose among models (``selection=ood_val``); no result is reported on them.
    """

    name: str = "fixed"
    train: Sequence[str] | None = None
    val: Sequence[str] | None = None
    test: Sequence[str] | None = None

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        if not self.test:
            raise ConfigError(
                f"protocol.test is not set and the dataset names no split; choose from {', '.join(given)}, e.g. "
                f"protocol.test=[{given[-1]}]"
            )
        test = environments("protocol.test", self.test, given)
        val = environments("protocol.val", self.val or [], given)
        if self.train is None:
            train = [env for env in given if env not in (*test, *val)]
        else:
            train = environments("protocol.train", self.train, given)
        for first, second, names in (
            ("train", "test", {*train} & {*test}),
            ("train", "val", {*train} & {*val}),
            ("val", "test", {*val} & {*test}),
        ):
            if names:
                raise ConfigError(f"protocol.{first} and protocol.{second} both name {min(names)}; keep it in one")
        if not train:
            raise ConfigError(
                "protocol.test and protocol.val hold out all given environments, so nothing is left to train on; "
                "leave at least one out of them"
            )
        training = tuple(env for env in given if env in train)
        held_out = tuple(env for env in given if env not in train)
        return [Fold("0", training, held_out, (tuple(test),), tuple(val))]

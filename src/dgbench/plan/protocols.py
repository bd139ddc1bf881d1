"""Protocols beside leave-one-out: groups of test environments, a fixed split, flexible domain
generalization.

Each is a class that plans folds from the names of the given environments, as a user types them in
its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from dgbench.analysis.selection import typed_name
from dgbench.errors import ConfigError
from dgbench.plan.folds import Fold, Membership, Protocol
from dgbench.plan.settings import FileName
from dgbench.seeding import derive
from dgbench.validation import Refusal

Names = Annotated[
    list[str | int | float] | str | int | float | None, Refusal("is no list of names", "name some")
]
Groups = Annotated[
    Sequence[Sequence[str | int | float]] | None,
    Refusal("is no list of lists of names", "write e.g. [[a],[b,c]]"),
]
Many = Annotated[int, Field(ge=1), Refusal("is not an integer >= 1", "give one")]
Limit = Annotated[
    Annotated[int, Field(ge=1)] | None,
    Refusal("is not an integer >= 1", "give one, or null for all"),
]
AtLeast0 = Annotated[int, Field(ge=0), Refusal("is not an integer >= 0", "give one")]


def check_validation(typed: Any, given: Sequence[str]) -> None:
    """Refuse ``selection.environments`` that are no given ones.

    None and an empty list are left to the selection.

    Raises:
        ConfigError: a name that is not given.
    """
    for name in typed if isinstance(typed, Sequence) and not isinstance(typed, str) else []:
        if typed_name(name) not in given:
            raise ConfigError(
                f"selection.environments names {name}, which is no given environment; choose from "
                f"{', '.join(given)}"
            )


def environments(key: str, typed: Any, given: Sequence[str]) -> list[str]:
    """Find the given environments that a list names.

    ``0.9`` also finds ``0.90``, which YAML cannot keep as typed.

    Raises:
        ConfigError: a name that is not given or is there twice.
    """
    if isinstance(typed, (str, int, float)):
        typed = [typed]  # protocol.test=a has no brackets
    names = []
    for name in typed:
        match = [env for env in given if env == str(name)] or [
            env for env in given if _number(env) == _number(name)
        ]
        if not match:
            raise ConfigError(
                f"{key} names {name}, which is no given environment; choose from {', '.join(given)}"
            )
        if match[0] in names:
            raise ConfigError(f"{key} holds {match[0]} twice; name each environment once")
        names.append(match[0])
    return names


def _number(name: Any) -> float | str:
    try:
        return float(name)
    except (TypeError, ValueError):
        return str(name)


class Grouped(Protocol):
    """Groups of given environments, one fold each. An environment in no group is always trained on.

    What each key means stands in ``conf/protocol/multi_test.yaml``.
    """

    groups: Groups = None
    k: Annotated[
        Annotated[int, Field(ge=1)] | None, Refusal("is not an integer >= 1", "give one, or null")
    ] = None
    default_groups: Groups = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.groups is not None and self.k is not None:
            raise ConfigError("protocol.groups and protocol.k are both set; leave one of them null")
        return self

    def grouped(self, given: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Form the groups from ``groups``, ``k`` or the dataset's own, and check them.

        Raises:
            ConfigError: an unknown name, an environment in two groups, an empty group, or a ``k``
                that does not fit.
        """
        if self.groups is not None:
            return _checked("protocol.groups", self.groups, given)
        if self.k is None and self.default_groups is not None:
            return _checked("dataset.test_groups", self.default_groups, given)
        return _consecutive(2 if self.k is None else self.k, given)


class MultiTest(Grouped):
    """Each group held out once, together (Yu et al. 2024, section 3.1)."""

    name: FileName = "multi_test"

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        groups = self.grouped(given)
        planned = []
        for i, group in enumerate(groups):
            training = tuple(env for env in given if env not in group)
            if not training:
                raise ConfigError(
                    f"protocol.groups: holding out {', '.join(group)} leaves no environment to "
                    "train on; split that group or give the dataset more environments"
                )
            planned.append(Fold(str(i), training, group, groups))
        return planned


class TargetOracle(Grouped):
    """Each group trained on and tested in: on its ``train`` subsets, in its ``test`` subsets, which
    are disjoint.

    What a model reaches that may see the test distribution ("Oracle" of Zhang et al. 2023, Table
    2). Its rows say that no tested environment was held out, so no selection method takes them for
    such, and reports say so.
    """

    name: FileName = "target_oracle"

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        groups = self.grouped(given)
        folds = []
        for i, group in enumerate(groups):
            others = tuple(env for env in given if env not in group)
            folds.append(Fold(str(i), group, others, groups))
        return folds


def _checked(key: str, typed: Sequence[Any], given: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    groups = []
    assigned: set[str] = set()
    for group in typed:
        names = environments(key, group, given)
        if not names:
            raise ConfigError(f"{key} holds an empty group; name at least one environment in it")
        twice = sorted(assigned & set(names))
        if twice:
            raise ConfigError(f"{key} has {twice[0]} in two groups; an environment is tested once")
        assigned |= set(names)
        groups.append(tuple(env for env in given if env in names))
    if not groups:
        raise ConfigError(f"{key} is empty; name at least one group, e.g. {key}=[[{given[0]}]]")
    return tuple(groups)


def _consecutive(k: int, given: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    if k >= len(given):
        raise ConfigError(
            f"protocol.k={k} must be 1 to {len(given) - 1} for {len(given)} given environments, "
            "so that some are left to train on"
        )
    groups = tuple(tuple(given[i : i + k]) for i in range(0, len(given), k))
    if len(groups[-1]) < k:
        written = ",".join(f"[{','.join(group)}]" for group in groups)
        raise ConfigError(
            f"protocol.k={k} does not divide the {len(given)} given environments; write the "
            f"groups, e.g. protocol.groups=[{written}]"
        )
    return groups


class Fixed(Protocol):
    """One fold (Ye et al. 2022, appendix G).

    What each key means stands in ``conf/protocol/fixed.yaml``.
    """

    name: FileName = "fixed"
    train: Names = None
    val: Names = None
    test: Names = None

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        if not self.test:
            raise ConfigError(
                "protocol.test is not set and the dataset names no split; choose from "
                f"{', '.join(given)}, e.g. protocol.test=[{given[-1]}]"
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
                raise ConfigError(
                    f"protocol.{first} and protocol.{second} both name {min(names)}; keep it in one"
                )
        if not train:
            raise ConfigError(
                "protocol.test and protocol.val hold out all given environments, so nothing is "
                "left to train on; leave at least one out of them"
            )
        training = tuple(env for env in given if env in train)
        held_out = tuple(env for env in given if env not in train)
        return [Fold("0", training, held_out, (tuple(test),), tuple(val))]


class Flexible(Protocol):
    """One fold, in which each class draws its own environments (Zhang et al. 2023, section 5.3).

    For every class, ``dominant`` environments train with all their images of it, ``minor`` ones
    with ``minor_images``, and ``test`` others test with ``test_images``. Within one environment,
    the classes trained on make up the rows ``train`` and ``val`` (not held out), the classes tested
    the rows ``test`` (held out): no image of a tested class of that environment was ever trained
    on.

    * ``random``: drawn from all environments, so an environment may train one class and test
      another, which ties it to labels.
    * ``compositional``: ``exclusive`` environments are drawn once for all classes and only ever
      train; each class draws its dominant ones from them, and its minor and test ones from the
      rest, which they share.

    What each key means stands in ``conf/protocol/flexible.yaml``; environments that are over take
    no part.
    """

    name: FileName = "flexible"
    setting: Literal["random", "compositional"] = "random"
    dominant: Many = 2
    minor: AtLeast0 = 2
    test: Many = 2
    exclusive: AtLeast0 = 2
    minor_images: Limit = 50
    test_images: Limit = 50
    seed: AtLeast0 = 0

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        self._check(given, n_classes)
        exclusive: list[str] = []
        if self.setting == "compositional":
            rng = np.random.default_rng(derive(self.seed, "flexible", "exclusive"))
            drawn = rng.permutation(len(given))
            exclusive = [given[i] for i in drawn[: self.exclusive]]
        training: dict[str, dict[int, int | None]] = {env: {} for env in given}
        tested: dict[str, dict[int, int | None]] = {env: {} for env in given}
        for label in range(n_classes):
            rng = np.random.default_rng(derive(self.seed, "flexible", label))
            order = [given[i] for i in rng.permutation(len(given))]
            first = [env for env in order if env in exclusive] if exclusive else order
            dominant = first[: self.dominant]
            rest = [env for env in order if env not in (exclusive or dominant)]
            for env in dominant:
                training[env][label] = None
            for env in rest[: self.minor]:
                training[env][label] = self.minor_images
            for env in rest[self.minor : self.minor + self.test]:
                tested[env][label] = self.test_images
        membership = Membership(
            {env: part for env, part in training.items() if part},
            {env: part for env, part in tested.items() if part},
        )
        judged = tuple(membership.tested)
        return [Fold("0", tuple(membership.training), judged, (judged,), membership=membership)]

    def _check(self, given: Sequence[str], n_classes: int) -> None:
        if n_classes < 1:
            raise ConfigError(
                "protocol=flexible needs the number of classes; use a dataset that has it"
            )
        if self.setting == "random":
            needed = self.dominant + self.minor + self.test
            n_given = len(given)
            if needed > n_given:
                raise ConfigError(
                    f"protocol.dominant + minor + test = {needed} is more than the {n_given} "
                    "given environments; lower one"
                )
            return
        if not self.dominant <= self.exclusive < len(given):
            raise ConfigError(
                f"protocol.exclusive={self.exclusive} must be protocol.dominant={self.dominant} "
                f"to {len(given) - 1}, one less than the given environments"
            )
        shared = len(given) - self.exclusive
        if self.minor + self.test > shared:
            raise ConfigError(
                f"protocol.minor + test = {self.minor + self.test} is more than the {shared} "
                f"environments that are not exclusive (of {len(given)}, "
                f"protocol.exclusive={self.exclusive}); lower one"
            )

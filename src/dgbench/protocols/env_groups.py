"""Protocols over groups of environments: several test environments per trained model, and its oracle counterpart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dgbench.errors import ConfigError
from dgbench.protocols.environment_names import environments
from dgbench.protocols.folds import Fold, Protocol


@dataclass(frozen=True, kw_only=True)
class Grouped(Protocol):
    """Groups of given environments, one fold each. An environment in no group is always trained on.

    Args:
        groups: lists of names.
        k: environments per group, consecutive given ones; instead of ``groups``.
        default_groups: groups of the dataset, where neither is set; without them ``k`` is 2.
    """

    groups: Sequence[Sequence[str]] | None = None
    k: int | None = None
    default_groups: Sequence[Sequence[str]] | None = None

    def grouped(self, given: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The groups, checked.

        Raises:
            ConfigError: an unknown name, an environment in two groups, an empty group, or a ``k`` that does not fit.
        """
        if self.groups is not None and self.k is not None:
            raise ConfigError("protocol.groups and protocol.k are both set; leave one of them null")
        if self.groups is not None:
            return _checked("protocol.groups", self.groups, given)
        if self.k is None and self.default_groups is not None:
            return _checked("dataset.test_groups", self.default_groups, given)
        return _consecutive(2 if self.k is None else self.k, given)


@dataclass(frozen=True, kw_only=True)
class MultiTest(Grouped):
    """Each group held out once, together (Yu et al. 2024, section 3.1)."""

    name: str = "multi_test"

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        groups = self.grouped(given)
        planned = []
        for i, group in enumerate(groups):
            training = tuple(env for env in given if env not in group)
            if not training:
                raise ConfigError(
                    f"protocol.groups: holding out {', '.join(group)} leaves no environment to train on; "
                    "split that group or give the dataset more environments"
                )
            planned.append(Fold(str(i), training, group, groups))
        return planned


@dataclass(frozen=True, kw_only=True)
class TargetOracle(Grouped):
    """Each group trained on and tested in: on its ``train`` subsets, in its ``test`` subsets, which are disjoint.

    What a model reaches that may see the test distribution ("Oracle" of Zhang et al. 2023, Table 2). Its rows say that
    no tested environment was held out, so no selection method takes them for such, and reports say so.
    """

    name: str = "target_oracle"

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        groups = self.grouped(given)
        return [
            Fold(str(i), group, tuple(env for env in given if env not in group), groups)
            for i, group in enumerate(groups)
        ]


def _checked(key: str, typed: Any, given: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    if not _is_list(typed) or not all(map(_is_list, typed)):
        raise ConfigError(f"{key}={typed} is no list of lists; write e.g. {key}=[[{given[0]}],[{given[-1]}]]")
    groups = []
    seen: set[str] = set()
    for group in typed:
        names = environments(key, group, given)
        if not names:
            raise ConfigError(f"{key} holds an empty group; name at least one environment in it")
        if twice := sorted(seen & set(names)):
            raise ConfigError(f"{key} has {twice[0]} in two groups; an environment is tested once")
        seen |= set(names)
        groups.append(tuple(env for env in given if env in names))
    if not groups:
        raise ConfigError(f"{key} is empty; name at least one group, e.g. {key}=[[{given[0]}]]")
    return tuple(groups)


def _is_list(typed: Any) -> bool:
    return isinstance(typed, Sequence) and not isinstance(typed, str)


def _consecutive(k: Any, given: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    if not isinstance(k, int) or isinstance(k, bool) or not 0 < k < len(given):
        raise ConfigError(
            f"protocol.k={k} must be 1 to {len(given) - 1} for {len(given)} given environments, so that some are left "
            "to train on"
        )
    groups = tuple(tuple(given[i : i + k]) for i in range(0, len(given), k))
    if len(groups[-1]) < k:
        written = ",".join(f"[{','.join(group)}]" for group in groups)
        raise ConfigError(
            f"protocol.k={k} does not divide the {len(given)} given environments; write the groups, e.g. "
            f"protocol.groups=[{written}]"
        )
    return groups

"""Folds: which given environments each model of a study trains on, and which test rows are its
result.

A protocol is a small class that plans folds from the names of the given environments; it never sees
an image. A new one is a new class and one file in ``conf/protocol``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from dgbench.analysis.selection import Selection
from dgbench.data.description import DatasetInfo
from dgbench.errors import ConfigError
from dgbench.plan.building import build_plain
from dgbench.plan.report_line import selecting_report_line
from dgbench.plan.settings import FileName
from dgbench.validation import Checked, Refusal, shown, some_of

FULL = "full"  #: name of the fold that trains on all given environments, for the ideal measure
LOO = "loo"  #: leave-one-out: fold i holds out the i-th given environment
SINGLE_SOURCE = "single_source"  #: fold i trains on the i-th given environment alone

#: class -> how many of its images count, None for all; a class that is absent takes no part
Part = Mapping[int, int | None]


@dataclass(frozen=True)
class Membership:
    """Which classes of which environments a model trains on and is tested on, where that differs
    between classes.
    """

    #: environment -> its classes in training (and in its ``train`` and ``val`` subsets)
    training: Mapping[str, Part]
    #: environment -> its classes in its ``test`` subset; never one that it trains on
    tested: Mapping[str, Part]


@dataclass(frozen=True)
class Fold:
    """One model to train."""

    name: str  #: ``0``, ``1``, ... or ``full``.
    training: tuple[str, ...]  #: environments to train on, in the order of the given ones
    #: given environments never trained on; with a membership, those of which some class never is
    held_out: tuple[str, ...]
    #: tested environments of every fold of the protocol, by number, or None if the given
    #: environments tell (leave-one-out, single source)
    folds: tuple[tuple[str, ...], ...] | None = None
    validation: tuple[str, ...] = ()  #: held-out environments that only choose among models
    membership: Membership | None = None  #: None if all classes share their environments

    @property
    def tested(self) -> tuple[str, ...]:
        """Environments whose ``test`` rows are its result."""
        return self.held_out if self.folds is None else self.folds[int(self.name)]

    @property
    def scored(self) -> tuple[str, ...]:
        """Given environments that have rows."""
        return tuple(dict.fromkeys([*self.training, *self.tested, *self.validation]))

    @property
    def everywhere(self) -> bool:
        """Whether it is judged in all environments, not only in given ones."""
        return not self.held_out and self.folds is None

    @property
    def title(self) -> str:
        """What a progress line calls it."""
        if self.membership:
            return "other environments for every class"
        if not set(self.tested) <= set(self.held_out):
            return f"oracle, trained on other images of {', '.join(self.tested)}"
        if len(self.tested) > 1 and len(self.training) == 1:
            return f"train on {self.training[0]} alone"
        return f"hold out {', '.join(self.held_out)}" if self.held_out else "all given environments"

    def key(self) -> dict[str, Any]:
        """Return what identifies the fold in hashes and files: its fields, less those left at their
        default.
        """
        extra = {
            "folds": None if self.folds is None else [list(tested) for tested in self.folds],
            "validation": list(self.validation),
            "membership": None if self.membership is None else asdict(self.membership),
        }
        plain = {
            "name": self.name,
            "training": list(self.training),
            "held_out": list(self.held_out),
        }
        return {**plain, **{name: value for name, value in extra.items() if value}}


class Protocol(Checked, ABC):
    """Plans the folds of a study."""

    key = "protocol"

    name: FileName
    folds: Annotated[
        list[str | int] | str | int | None,
        Refusal("is no list of folds", "name some, e.g. [0,2], or null for all"),
    ] = None

    @abstractmethod
    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        """Plan all folds over these given environments, of ``n_classes`` classes.

        Raises:
            ConfigError: the protocol's keys do not fit the environments.
        """

    def __call__(self, given: Sequence[str], n_classes: int = 0) -> list[Fold]:
        """Plan the folds to train, in their usual order.

        Raises:
            ConfigError: the protocol's keys do not fit the environments, or name a fold that does
                not exist.
        """
        planned = self.plan(given, n_classes)
        if self.folds is None:
            return planned
        # protocol.folds=full has no brackets
        typed = self.folds if isinstance(self.folds, list) else [self.folds]
        typed_names = set(map(str, typed))
        unknown = sorted(typed_names - {fold.name for fold in planned})
        if unknown or not typed_names:
            names = ", ".join(fold.name for fold in planned)
            raise ConfigError(
                f"protocol.folds={shown(typed)} has no fold {unknown[:1] or '[]'}; choose from "
                f"{names}"
            )
        return [fold for fold in planned if fold.name in typed_names]


class LeaveOneOut(Protocol):
    """Each given environment held out once, and a ``full`` fold on all of them for the ideal
    measure.
    """

    name: FileName = LOO

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        if len(given) < 2:
            raise ConfigError(
                f"leave-one-out needs at least 2 given environments, and the dataset has "
                f"{len(given)}; give more"
            )
        planned = [
            Fold(str(i), _others(given, held_out), (held_out,)) for i, held_out in enumerate(given)
        ]
        return [*planned, Fold(FULL, tuple(given), ())]


class SingleSource(Protocol):
    """Each given environment alone as training, all others held out."""

    name: FileName = SINGLE_SOURCE

    def plan(self, given: Sequence[str], n_classes: int) -> list[Fold]:
        if len(given) < 2:
            raise ConfigError(
                f"single-source needs at least 2 given environments, and the dataset has "
                f"{len(given)}; give more"
            )
        return [Fold(str(i), (source,), _others(given, source)) for i, source in enumerate(given)]


def _others(given: Sequence[str], env: str) -> tuple[str, ...]:
    """List the given environments but one."""
    return tuple(other for other in given if other != env)


def tested_by_fold(identity: Mapping[str, Any]) -> list[list[str]] | None:
    """List the tested environments of fold 0, 1, ... of a study, or return None if not known.

    Args:
        identity: of any row of the study.
    """
    given = list(identity["given"])
    usual: dict[str, list[list[str]]] = {
        LOO: [[env] for env in given],
        SINGLE_SOURCE: [list(_others(given, source)) for source in given],
    }
    folds: list[list[str]] | None = identity.get("folds")
    return folds or usual.get(identity["protocol"])


def tested(identity: Mapping[str, Any]) -> list[str]:
    """List the environments whose ``test`` rows are the result of the run with that identity."""
    folds = identity.get("folds")
    return list(folds[int(identity["fold"])] if folds else identity["held_out"])


def trained_on_tested(identity: Mapping[str, Any]) -> bool:
    """Return whether a run trained on other images of the environments that it is tested in: no
    generalization.
    """
    return not set(tested(identity)) <= set(identity["held_out"])


def planned_folds(protocol: Mapping[str, Any], info: DatasetInfo) -> list[Fold]:
    """Plan the folds that a study trains.

    The fold of all given environments is planned only where others exist to judge it, or where
    folds are named.

    Raises:
        ConfigError: the protocol's keys do not fit the environments.
    """
    planned: list[Fold] = build_plain(protocol, "protocol")(list(info.given), info.n_classes)
    asked = info.beyond or protocol.get("folds") is not None
    return [
        without_small(fold, info.only_tested) for fold in planned if asked or not fold.everywhere
    ]


def without_small(fold: Fold, only_tested: Collection[str]) -> Fold:
    """Leave environments that are too small (``dataset.min_images``) out of what a fold trains on.

    Raises:
        ConfigError: nothing is left to train on.
    """
    training = tuple(env for env in fold.training if env not in only_tested)
    if training == fold.training:
        return fold
    if not training:
        raise ConfigError(
            f"dataset.min_images leaves nothing to train fold {fold.name} on "
            f"({some_of(fold.training)}); lower it, or leave these out with dataset.environments"
        )
    membership = fold.membership
    if membership is not None:
        kept = {env: part for env, part in membership.training.items() if env in training}
        membership = replace(membership, training=kept)
    return replace(fold, training=training, membership=membership)


def selection_note(selection: Selection, folds: Sequence[Fold], runs: Path) -> str | None:
    """Explain why the closing table cannot choose steps by this selection, or return None.

    Rows stay the same.

    Args:
        selection: of the closing table.
        folds: that are trained.
        runs: folder of their studies, for the command of a report.
    """
    if getattr(selection, "needs_other_runs", False):  # a user's own class may not say
        return (
            f"selection={selection.name} judges a run by runs that hold out one environment more, "
            "so the closing table stays empty; train those too (protocol=multi_test "
            "protocol.groups=[[A,B],...]), and read all with "
            f"{selecting_report_line(selection, [runs])}"
        )
    held: set[str] = set()
    for fold in folds:
        held.update(fold.held_out)
    not_held_out = [name for name in selection.validation_environments if name not in held]
    if not_held_out:
        return (
            f"selection.environments={not_held_out} is held out by no fold here (but "
            f"{', '.join(sorted(held))} are), so the closing table stays empty; choose one of "
            "those, or a protocol that holds it out"
        )
    return None

"""Folds: which given environments each model of a study never trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgbench.errors import ConfigError


@dataclass(frozen=True)
class Fold:
    """One model to train.

    Args:
        name: ``0``, ``1``, ... or ``full``.
        training: environments to train on, in the order of the given ones.
        held_out: given environments never trained on.
    """

    name: str
    training: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def title(self) -> str:
        """What a progress line calls it."""
        return f"hold out {', '.join(self.held_out)}" if self.held_out else "all given environments"


@dataclass(frozen=True)
class LeaveOneOut:
    """Each given environment held out once, and a ``full`` fold on all of them for the ideal measure.

    Args:
        name: name of the protocol in the rows.
        folds: names of the folds to train; None trains all. Leaving folds out changes no result of the others.
    """

    name: str = "loo"
    folds: Sequence[str | int] | str | int | None = None

    def __call__(self, given: Sequence[str]) -> list[Fold]:
        """The folds of a study over the given environments.

        Raises:
            ConfigError: a fold that does not exist, or fewer than two given environments.
        """
        if len(given) < 2:
            raise ConfigError(f"leave-one-out needs at least 2 given environments, these are {len(given)}; give more")
        planned = [Fold(str(i), tuple(e for e in given if e != out), (out,)) for i, out in enumerate(given)]
        planned.append(Fold("full", tuple(given), ()))
        if self.folds is None:
            return planned
        folds = (
            [self.folds] if isinstance(self.folds, (int, str)) else self.folds
        )  # protocol.folds=full has no brackets
        wanted = [str(name) for name in folds]
        unknown = [name for name in wanted if name not in {fold.name for fold in planned}]
        if unknown or not wanted:
            known = ", ".join(fold.name for fold in planned)
            raise ConfigError(f"protocol.folds={list(folds)} has no fold {unknown[:1] or '[]'}; choose from {known}")
        return [fold for fold in planned if fold.name in wanted]

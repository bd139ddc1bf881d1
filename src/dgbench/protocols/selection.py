"""Model selection over rows: which evaluated step of a member counts.

A selection is a small callable object. It sees the rows of one member as dictionaries with the keys of
:class:`dgbench.records.Row` (``step``, ``env``, ``subset``, ``env_held_out``, ``seen``, ``wrong``) and returns a
:class:`Choice`. A new method is a new class here or elsewhere and one file in ``conf/selection``.

Source: DomainBed's ``model_selection.py``; see also Gulrajani & Lopez-Paz 2021, section 3.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dgbench.errors import RecordError

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Choice:
    """What a selection decided for one member."""

    step: int  #: the evaluated step whose errors count
    accuracy: float | None  #: validation accuracy in [0, 1] that speaks for it; None where the method has none


class Selection(Protocol):
    """Chooses a step from the rows of one member."""

    @property
    def name(self) -> str:
        """The name in ``conf/selection``."""

    @property
    def title(self) -> str:
        """What a table's title says."""

    @property
    def uses_test_environments(self) -> bool:
        """True when the choice looks at a held-out environment."""

    def __call__(self, rows: Rows) -> Choice:
        """Choose.

        Raises:
            RecordError: the rows lack what the method needs.
        """


def describe(selection: Selection) -> str:
    """The words that every table title carries; a method that looks at test environments is marked here, once."""
    if selection.uses_test_environments:
        return f"ORACLE SELECTION: {selection.title}"
    return f"selection: {selection.title}"


@dataclass(frozen=True)
class Last:
    """The last evaluated step; no validation data are used."""

    name: ClassVar[str] = "last"
    title: ClassVar[str] = "last step"
    uses_test_environments: ClassVar[bool] = False

    def __call__(self, rows: Rows) -> Choice:
        return Choice(last_step(rows), None)


@dataclass(frozen=True)
class TrainVal:
    """Training-domain validation: the step with the highest mean accuracy over the training environments' ``val``.

    The mean over environments is unweighted; the first step wins a tie. A step that lacks the ``val`` row of a
    training environment is not considered.
    """

    name: ClassVar[str] = "train_val"
    title: ClassVar[str] = "training-domain validation"
    uses_test_environments: ClassVar[bool] = False

    def __call__(self, rows: Rows) -> Choice:
        by_step: dict[int, dict[str, float]] = defaultdict(dict)
        for row in rows:
            if row["subset"] == "val" and not row["env_held_out"]:
                by_step[row["step"]][row["env"]] = _accuracy(row)
        environments = {env for accuracies in by_step.values() for env in accuracies}
        if not environments:
            raise RecordError("no val rows of a training environment; choose selection=last")
        best: Choice | None = None
        for step in sorted(by_step):
            if by_step[step].keys() == environments:
                # fsum rounds once, so equal means tie whatever the order of the rows
                accuracy = math.fsum(by_step[step].values()) / len(environments)
                if best is None or accuracy > best.accuracy:  # type: ignore[operator]
                    best = Choice(step, accuracy)
        if best is None:
            raise RecordError("no step has val rows of every training environment; choose selection=last")
        return best


@dataclass(frozen=True)
class Oracle:
    """Test-domain validation: the last step, judged by the ``val`` rows of the held-out environments.

    As in DomainBed there is no early stopping, so the step is that of :class:`Last`; the accuracy chooses among
    hyperparameter draws. A member that holds nothing out (fold ``full``) has no such accuracy.
    """

    name: ClassVar[str] = "oracle"
    title: ClassVar[str] = "test-domain validation, last step"
    uses_test_environments: ClassVar[bool] = True

    def __call__(self, rows: Rows) -> Choice:
        step = last_step(rows)
        judged = [row for row in rows if row["step"] == step and row["subset"] == "val" and row["env_held_out"]]
        if judged:
            return Choice(step, math.fsum(_accuracy(row) for row in judged) / len(judged))
        # fold full holds nothing out, but its test rows name environments outside the given ones
        if any(row["subset"] == "val" and row["env_held_out"] for row in rows):
            raise RecordError(f"no val rows of the held-out environment at step {step}; choose selection=last")
        return Choice(step, None)


def last_step(rows: Rows) -> int:
    """The largest step (optimizer updates) that was evaluated.

    Raises:
        RecordError: there are no rows.
    """
    if not rows:
        raise RecordError("no rows; train this fold")
    return int(max(row["step"] for row in rows))


def _accuracy(row: Mapping[str, Any]) -> float:
    return float(1 - row["wrong"] / row["seen"])

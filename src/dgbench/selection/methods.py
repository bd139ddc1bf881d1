"""Model selection over rows: which evaluated step of a run counts, and which hyperparameter draw of a search.

A selection is a small object of one class. It judges the runs of a whole sweep at once (:meth:`Method.choose`), or
one run by its rows alone (calling it). A new method is a new class and one file in ``conf/selection``. Methods that
look beyond a run or beyond its training environments stand in :mod:`dgbench.selection.beyond`.

Source: DomainBed's model selection; see also Gulrajani & Lopez-Paz 2021, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from dgbench.errors import RecordError
from dgbench.selection.columns import Choices, Ints, Records, Rows, first_best, scores

__all__ = ["Choice", "Last", "Method", "Oracle", "Rows", "Selection", "TrainVal", "describe", "last_step"]


@dataclass(frozen=True)
class Choice:
    """What a selection decided for one run."""

    step: int  #: the evaluated step whose errors count
    accuracy: float | None  #: validation accuracy in [0, 1] that speaks for it; None where the method has none


class Selection(Protocol):
    """Chooses a step of each run, and says what speaks for it."""

    @property
    def name(self) -> str:
        """The name in ``conf/selection``."""

    @property
    def title(self) -> str:
        """What a table's title says."""

    @property
    def uses_test_environments(self) -> bool:
        """True when the choice looks at an environment whose accuracy is then reported."""

    @property
    def validation_environments(self) -> tuple[str, ...]:
        """Held-out environments that only choose; no accuracy is reported on them."""

    @property
    def one_search(self) -> bool:
        """True when the draw chosen with the first seed counts for all seeds (and the first draw wins a tie)."""

    @property
    def chooses_draws(self) -> bool:
        """False for a method without an accuracy, which must leave the draws of a search apart."""

    def choose(self, records: Records) -> Choices:
        """Choose for every run; one for which that is impossible gets the reason."""

    def __call__(self, rows: Rows) -> Choice:
        """Choose for the run of these rows.

        Raises:
            RecordError: the rows lack what the method needs.
        """


class Method:
    """What all selection methods share."""

    name: ClassVar[str]
    uses_test_environments: ClassVar[bool] = False
    one_search: ClassVar[bool] = False
    chooses_draws: ClassVar[bool] = True
    needs_other_runs: ClassVar[bool] = False  #: True where a run can only be judged beside others, in a report

    @property
    def validation_environments(self) -> tuple[str, ...]:
        return ()

    def choose(self, records: Records) -> Choices:
        raise NotImplementedError

    def __call__(self, rows: Rows) -> Choice:
        if not rows:
            raise RecordError("no rows; train this fold")
        choices = self.choose(Records.of_member(rows))
        if 0 in choices.why:
            raise RecordError(choices.why[0])
        return Choice(int(choices.steps[0]), float(choices.accuracy[0]) if choices.judged[0] else None)


def describe(selection: Selection) -> str:
    """The words that every table title carries; a method that looks at test environments is marked here, once."""
    if selection.uses_test_environments:
        return f"ORACLE SELECTION: {selection.title}"
    return f"selection: {selection.title}"


@dataclass(frozen=True)
class Last(Method):
    """The last evaluated step; no validation data are used, so it cannot choose among hyperparameter draws."""

    name: ClassVar[str] = "last"
    title: ClassVar[str] = "last step"
    chooses_draws: ClassVar[bool] = False

    def choose(self, records: Records) -> Choices:
        steps = records.last_steps()
        return _without_accuracy(steps, _no_rows(steps))


@dataclass(frozen=True)
class TrainVal(Method):
    """Training-domain validation: the step with the highest mean accuracy over the training environments' ``val``.

    The mean over environments is unweighted; the first step wins a tie, NaN is lowest. A step that lacks the ``val``
    row of a training environment is not considered.
    """

    name: ClassVar[str] = "train_val"
    title: ClassVar[str] = "training-domain validation"

    def choose(self, records: Records) -> Choices:
        return best_by_training_val(records, pooled=False)


@dataclass(frozen=True)
class Oracle(Method):
    """Test-domain validation: the last step, judged by the mean over the held-out environments' ``val``.

    As in DomainBed there is no early stopping, so the step is that of :class:`Last`; the accuracy chooses among
    hyperparameter draws. A run that holds nothing out (fold ``full``) has no such accuracy.
    """

    name: ClassVar[str] = "oracle"
    title: ClassVar[str] = "test-domain validation, last step"
    uses_test_environments: ClassVar[bool] = True

    def choose(self, records: Records) -> Choices:
        steps = records.last_steps()
        why = _no_rows(steps)
        # fold full holds nothing out: its test rows name environments outside the given ones, its val rows do not
        judging = records.of_subset("val") & records.held_out
        needed = records.environments_of(judging)
        at_end = judging & (records.step == steps[records.run])
        found = scores(records.run[at_end], records.step[at_end], records.accuracy[at_end], needed)
        judged, accuracy = np.zeros(len(steps), dtype=bool), np.full(len(steps), np.nan)
        judged[found.run], accuracy[found.run] = True, found.value
        for run in np.flatnonzero((needed > 0) & ~judged):
            why[int(run)] = f"no val rows of the held-out environment at step {steps[run]}; choose selection=last"
            steps[run] = -1
        return Choices(steps, accuracy, judged, why)


def best_by_training_val(records: Records, *, pooled: bool) -> Choices:
    """The first step with the highest accuracy over the training environments' ``val``.

    Args:
        records: rows of the runs.
        pooled: weigh every image equally instead of every environment.
    """
    rows = records.of_subset("val") & ~records.held_out
    needed = records.environments_of(rows)
    weight = records.seen[rows] if pooled else None
    found = scores(records.run[rows], records.step[rows], records.accuracy[rows], needed, weight)
    steps, accuracy = first_best(found, len(records.keys))
    why = {}
    for run in np.flatnonzero(steps < 0):
        lacks = "no step has val rows of every training environment" if needed[run] else ""
        why[int(run)] = f"{lacks or 'no val rows of a training environment'}; choose selection=last"
    return Choices(steps, accuracy, steps >= 0, why)


def last_step(rows: Rows) -> int:
    """The largest step (optimizer updates) that was evaluated.

    Raises:
        RecordError: there are no rows.
    """
    return Last()(rows).step


def _without_accuracy(steps: Ints, why: dict[int, str]) -> Choices:
    return Choices(steps, np.full(len(steps), np.nan), np.zeros(len(steps), dtype=bool), why)


def _no_rows(steps: Ints) -> dict[int, str]:
    return {int(run): "no rows; train this fold" for run in np.flatnonzero(steps < 0)}

"""Model selection: which evaluated step of a run counts.

A selection is a small object of one class, which judges the runs of a whole sweep at once
(:meth:`Selection.choose`). A new one is a new class and one file in ``conf/selection``. First come
methods that look at a run's own rows, then those that look at other runs or at other environments.
Which draw of a search counts is decided in :mod:`.draws`.

Source: DomainBed's model selection; see also Gulrajani & Lopez-Paz 2021, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from dgbench.analysis.evaluations import (
    AVERAGE,
    CRITERIA,
    Choices,
    Ints,
    Records,
    RunKey,
    first_best,
    scores,
)
from dgbench.errors import ConfigError

EACH = "each"  #: methods of adaptation have lines of their own
CHOSEN = "chosen"  #: one of them, or none, is chosen


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Chooses a step of each run, and tells its validation accuracy.

    Args:
        adaptation: what a model may do with the images that it is tested on: ``each`` keeps its
            methods apart and chooses their hyperparameters, ``chosen`` chooses the method as well,
            or none.

    Attributes:
        name: in ``conf/selection``.
        uses_test_environments: the choice looks at an environment whose accuracy is then reported.
        one_search: the draw chosen with the first seed counts for all seeds (and the first draw
            wins a tie).
        chooses_draws: False for a method without an accuracy, which must leave the draws of a
            search apart.
        needs_other_runs: a run can only be judged beside others, in a report.
    """

    name: ClassVar[str]
    uses_test_environments: ClassVar[bool] = False
    one_search: ClassVar[bool] = False
    chooses_draws: ClassVar[bool] = True
    needs_other_runs: ClassVar[bool] = False

    adaptation: str = EACH

    def __post_init__(self) -> None:
        if self.adaptation not in (EACH, CHOSEN):
            raise ConfigError(
                f"selection.adaptation={self.adaptation} is unknown; choose {EACH} or {CHOSEN}"
            )
        if self.adaptation == CHOSEN and not self.chooses_draws:
            raise ConfigError(
                f"selection.adaptation={CHOSEN} needs an accuracy to choose by, which "
                f"selection={self.name} does not look at; choose selection=train_val"
            )

    @property
    def title(self) -> str:
        """What a table's title tells."""
        raise NotImplementedError

    @property
    def rule(self) -> str:
        """Its name, and what of it is not usual."""
        return self.name

    @property
    def validation_environments(self) -> tuple[str, ...]:
        """Held-out environments that only choose; no accuracy is reported on them."""
        return ()

    def choose(self, records: Records) -> Choices:
        """Choose a step for every run; one for which that is impossible gets the reason."""
        raise NotImplementedError


@dataclass(frozen=True)
class OfEnvironments(Selection):
    """Base class of methods that judge a step by its accuracies in several environments.

    Raises:
        ConfigError: an unknown criterion.
    """

    #: ``average``; ``worst_environment``, the lowest accuracy of an environment; ``worst_group``,
    #: the lowest of a class in an environment; or ``balanced``, the mean over classes
    criterion: str = field(default=AVERAGE, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.criterion not in CRITERIA:
            raise ConfigError(
                f"selection.criterion={self.criterion} is unknown; choose {', '.join(CRITERIA)}"
            )

    @property
    def rule(self) -> str:
        return self.name if self.criterion == AVERAGE else f"{self.name} ({self.criterion})"

    @property
    def title(self) -> str:
        words = CRITERIA[self.criterion]
        return f"{self.base_title}, {words}" if words else self.base_title

    @property
    def base_title(self) -> str:
        """What a table's title tells of the method, whatever its criterion."""
        raise NotImplementedError

    def _with_reasons(self, records: Records, choices: Choices) -> Choices:
        """Say of runs without a step that their rows lack what the criterion looks at."""
        has_rows = np.zeros(len(choices.steps), dtype=bool)
        has_rows[records.run] = True
        is_told = np.zeros(len(choices.steps), dtype=bool)
        is_told[records.run[records.told_by(self.criterion)]] = True
        reason = (
            f"rows hold no errors by class, which selection.criterion={self.criterion} looks at; "
            "train it with trainer.class_errors=true"
        )
        lacking = np.flatnonzero(has_rows & ~is_told & (choices.steps < 0))
        reasons = {**choices.reason, **dict.fromkeys(lacking.tolist(), reason)}
        return replace(choices, reason=reasons)


def typed_name(name: Any) -> str:
    """Format the name of an environment; a fraction has two decimals: ``0.10``.

    It has four if two would round it.
    """
    if not isinstance(name, float):
        return str(name)
    short = f"{name:.2f}"
    return short if abs(float(short) - name) < 5e-5 else f"{name:.4f}"


def describe(selection: Selection) -> str:
    """Format a selection for table titles.

    One that looks at test environments is marked as an oracle here, once.
    """
    title = selection.title
    if selection.adaptation == CHOSEN:
        title += ", of the adaptation as well"
    if selection.uses_test_environments:
        return f"ORACLE SELECTION: {title}"
    return f"selection: {title}"


@dataclass(frozen=True)
class Last(Selection):
    """The last evaluated step.

    No validation data are used, so it cannot choose among hyperparameter draws.
    """

    name: ClassVar[str] = "last"
    title: ClassVar[str] = "last step"
    chooses_draws: ClassVar[bool] = False

    def choose(self, records: Records) -> Choices:
        steps = records.last_steps()
        accuracy = np.full(len(steps), np.nan)
        judged = np.zeros(len(steps), dtype=bool)
        return Choices(steps, accuracy, judged, _no_rows(steps))


@dataclass(frozen=True)
class TrainVal(OfEnvironments):
    """Training-domain validation: the step with the highest mean accuracy on training ``val``.

    The mean over the training environments is unweighted (``criterion=worst_environment`` takes the
    lowest); the first step wins a tie, NaN is lowest.
    A step that lacks the ``val`` row of a training environment is not considered.
    """

    name: ClassVar[str] = "train_val"
    base_title: ClassVar[str] = "training-domain validation"

    def choose(self, records: Records) -> Choices:
        choices = best_by_training_val(records, pooled=False, criterion=self.criterion)
        return self._with_reasons(records, choices)


@dataclass(frozen=True)
class Oracle(OfEnvironments):
    """Test-domain validation: the last step, judged by the mean accuracy on held-out ``val``.

    As in DomainBed there is no early stopping, so the step is that of :class:`Last`; the accuracy
    chooses among hyperparameter draws. A run that holds nothing out (fold ``full``) has no such
    accuracy.
    """

    name: ClassVar[str] = "oracle"
    base_title: ClassVar[str] = "test-domain validation, last step"
    uses_test_environments: ClassVar[bool] = True

    def choose(self, records: Records) -> Choices:
        steps = records.last_steps()
        reasons = _no_rows(steps)
        # fold full holds nothing out: its test rows name environments outside the given ones, its
        # val rows do not
        judging = records.of_subset("val") & records.held_out
        needed = records.environments_of(judging)
        at_end = judging & (records.step == steps[records.run])
        at_end &= records.told_by(self.criterion)
        accuracies = scores(
            records.run[at_end],
            records.step[at_end],
            records.judged_by(self.criterion)[at_end],
            needed,
            criterion=self.criterion,
        )
        judged = np.zeros(len(steps), dtype=bool)
        judged[accuracies.run] = True
        accuracy = np.full(len(steps), np.nan)
        accuracy[accuracies.run] = accuracies.value
        for run in np.flatnonzero((needed > 0) & ~judged):
            reasons[int(run)] = (
                f"no val rows of the held-out environment at step {steps[run]}; choose "
                "selection=last"
            )
            steps[run] = -1
        return self._with_reasons(records, Choices(steps, accuracy, judged, reasons))


def best_by_training_val(records: Records, *, pooled: bool, criterion: str = AVERAGE) -> Choices:
    """Choose the first step with the highest accuracy over the training environments' ``val``.

    Args:
        records: rows of the runs.
        pooled: weigh every image equally instead of every environment.
        criterion: as in :func:`scores`.
    """
    rows = records.of_subset("val") & ~records.held_out
    needed = records.environments_of(rows)
    rows &= records.told_by(criterion)
    weight = records.seen[rows] if pooled else None
    values = records.judged_by(criterion)[rows]
    accuracies = scores(records.run[rows], records.step[rows], values, needed, weight, criterion)
    steps, accuracy = first_best(accuracies, len(records.keys))
    reasons = {}
    for run in np.flatnonzero(steps < 0):
        fault = "no val rows of a training environment"
        if needed[run]:
            fault = "no step has val rows of every training environment"
        reasons[int(run)] = f"{fault}; choose selection=last"
    return Choices(steps, accuracy, steps >= 0, reasons)


def _no_rows(steps: Ints) -> dict[int, str]:
    return {int(run): "no rows; train this fold" for run in np.flatnonzero(steps < 0)}


@dataclass(frozen=True)
class LooVal(OfEnvironments):
    """Leave-one-domain-out cross-validation: DomainBed's, for any number of held-out environments.

    A run that holds out the set H is judged at a step by the mean, over every other given
    environment v, of the ``test`` accuracy on v of the run that holds out H and v with the same
    draw and seed: v was unseen there. Steps that lack a v are dropped; the first best step wins,
    NaN is lowest.
    """

    name: ClassVar[str] = "loo_val"
    needs_other_runs: ClassVar[bool] = True
    base_title: ClassVar[str] = "leave-one-domain-out cross-validation"

    def choose(self, records: Records) -> Choices:
        judges = _judges(records)
        others = [len(set(key.given) - key.held_out) for key in records.keys]
        needed = np.array(others, dtype=np.int64)
        judging = records.held_out & records.of_subset("test")
        rows = np.flatnonzero(judging & records.told_by(self.criterion))
        judged = judges[records.run[rows], records.env[rows]]
        rows = rows[judged >= 0]
        judged = judged[judged >= 0].astype(np.int64)
        # a step counts only if the judged run was evaluated itself
        stride = int(records.step.max(initial=0)) + 1
        own_steps = np.unique(records.run * stride + records.step)
        evaluated = np.isin(judged * stride + records.step[rows], own_steps)
        rows = rows[evaluated]
        judged = judged[evaluated]
        order = np.lexsort((records.env[rows], records.step[rows], judged))
        rows = rows[order]
        judged = judged[order]
        accuracy_there = records.judged_by(self.criterion)[rows]
        accuracies = scores(
            judged,
            records.step[rows],
            accuracy_there,
            np.maximum(needed, 1),
            criterion=self.criterion,
        )
        steps, accuracy = first_best(accuracies, len(records.keys))
        choices = Choices(steps, accuracy, steps >= 0, _absent(records, judges, steps))
        return self._with_reasons(records, choices)


@dataclass(frozen=True)
class OodVal(OfEnvironments):
    """OoD validation (OoD-Bench): the step that is best on the ``val`` rows of named environments.

    They are held out of training like a test environment, and no accuracy is reported on them.
    """

    environments: Sequence[str]  #: names of the validation environments
    name: ClassVar[str] = "ood_val"

    def __post_init__(self) -> None:
        super().__post_init__()
        environments = self.environments
        is_list = isinstance(environments, Sequence) and not isinstance(environments, str)
        if not environments or not is_list:
            raise ConfigError(
                "selection.environments is no list of names; name one, e.g. "
                "selection.environments=[photo]"
            )
        names = self.validation_environments
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise ConfigError(
                f"selection.environments names {repeated[0]} twice; name each environment once"
            )

    @property
    def base_title(self) -> str:
        return f"OoD validation on {', '.join(self.validation_environments)}"

    @property
    def validation_environments(self) -> tuple[str, ...]:
        return tuple(map(typed_name, self.environments))

    def choose(self, records: Records) -> Choices:
        names = self.validation_environments
        codes = [records.environments.index(e) for e in names if e in records.environments]
        rows = records.of_subset("val") & records.held_out & np.isin(records.env, codes)
        needed = np.full(len(records.keys), len(set(names)), dtype=np.int64)
        rows &= records.told_by(self.criterion)
        accuracies = scores(
            records.run[rows],
            records.step[rows],
            records.judged_by(self.criterion)[rows],
            needed,
            criterion=self.criterion,
        )
        steps, accuracy = first_best(accuracies, len(records.keys))
        reason = f"no val rows of {', '.join(names)} held out; train a run that holds it out"
        reasons = {int(run): reason for run in np.flatnonzero(steps < 0)}
        choices = Choices(steps, accuracy, steps >= 0, reasons)
        return self._with_reasons(records, choices)


@dataclass(frozen=True)
class Yu2024(Selection):
    """Yu et al. 2024: the step with the highest accuracy over all training ``val`` images, pooled.

    The first best step and the first best draw win (strict improvement). The search runs with one
    seed; its draw counts for the other seeds, which run that draw only.
    """

    name: ClassVar[str] = "yu2024"
    title: ClassVar[str] = (
        "pooled training-domain validation, search on the first seed (Yu et al. 2024)"
    )
    one_search: ClassVar[bool] = True

    def choose(self, records: Records) -> Choices:
        return best_by_training_val(records, pooled=True)


def _judges(records: Records) -> Ints:
    """Index as [p, v] the run that p judges by its accuracy on v, or -1.

    The run p holds out all that the judged one does, and v.
    """
    codes = {name: code for code, name in enumerate(records.environments)}
    runs = {_place(key, key.held_out): run for run, key in enumerate(records.keys)}
    judges = np.full((len(records.keys), max(len(codes), 1)), -1, dtype=np.int32)
    for judge, key in enumerate(records.keys):
        for env in key.held_out:
            run = runs.get(_place(key, key.held_out - {env}))
            if run is not None and env in codes:
                judges[judge, codes[env]] = run
    return judges


def _place(key: RunKey, held_out: frozenset[str]) -> tuple[object, ...]:
    return key.group, held_out, key.seed, key.candidate


def _absent(records: Records, judges: Ints, chosen: Ints) -> dict[int, str]:
    """Explain for each run without a step why it has none."""
    codes = {name: code for code, name in enumerate(records.environments)}
    judged = np.zeros(judges.shape, dtype=bool)
    judge, judged_env = np.nonzero(judges >= 0)
    judged[judges[judge, judged_env], judged_env] = True
    reasons = {}
    for run in np.flatnonzero(chosen < 0).tolist():
        key = records.keys[run]
        lacking = []
        for env in key.given:
            is_judged = env in codes and judged[run, codes[env]]
            if env not in key.held_out and not is_judged:
                lacking.append(env)
        phrase = f"beside {', '.join(sorted(key.held_out))}" if key.held_out else "alone"
        reason = "no step at which this run and all that judge it were evaluated"
        if lacking:
            reason = f"no run of this draw and seed holds out {' or '.join(lacking)} {phrase}"
        reasons[run] = f"loo_val: {reason}"
    return reasons

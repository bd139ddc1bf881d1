"""Evaluations of many runs as columns, and the arithmetic that all selections share.

One entry of a column is one :class:`dgbench.records.rows.Row`. Sums run in the order of the rows,
which is that of the given environments; that is how DomainBed sums, so equal records tie here
exactly where they tie there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd


#: what several environments' accuracies become, key ``selection.criterion``
AVERAGE = "average"
WORST_ENVIRONMENT = "worst_environment"
WORST_GROUP = "worst_group"
BALANCED = "balanced"
CRITERIA = {
    AVERAGE: "",  # words added to a title
    WORST_ENVIRONMENT: "worst environment",
    WORST_GROUP: "worst class of an environment",
    BALANCED: "classes weighed alike",
}
#: criterion -> column of rows that it looks at in place of ``wrong``
COUNTED_BY = {WORST_GROUP: "worst_class_wrong", BALANCED: "balanced_wrong"}

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RunKey:
    """What tells the runs of a sweep apart, as far as a selection must know."""

    group: Hashable  #: whatever may not be mixed: dataset, algorithm, network, ...
    given: tuple[str, ...] = ()  #: given environments, in order
    held_out: frozenset[str] = frozenset()  #: environments never trained on
    seed: int = 0  #: seed, or DomainBed's trial
    draw: int = 0  #: number of the hyperparameter draw
    #: draws are chosen within a protocol, while runs judge one another across them
    protocol: str = ""
    #: how it adapts to test images, in words; empty if it does not
    adaptation: str = ""

    @property
    def candidate(self) -> tuple[int, str]:
        """Draw and adaptation, by which runs of one search differ."""
        return self.draw, self.adaptation

    @property
    def candidate_text(self) -> str:
        """Name it: ``draw 3``, ``draw 0 with adaptation=tent, lr=0.001``."""
        draw = f"draw {self.draw}"
        return f"{draw} with {self.adaptation}" if self.adaptation else draw


@dataclass(frozen=True)
class Records:
    """Rows of many runs. All arrays have one entry per row."""

    keys: Sequence[RunKey]
    environments: Sequence[str]  #: names that ``env`` points to
    subsets: Sequence[str]  #: names that ``subset`` points to
    run: Ints  #: position in ``keys``
    step: Ints  #: optimizer updates done
    env: Ints
    subset: Ints
    held_out: Mask  #: the run never trained on this environment
    accuracy: Floats  #: fraction right, in [0, 1] or NaN
    seen: Floats  #: images scored
    #: by criterion, accuracies of rows that hold errors by class; NaN for others
    by_class: Mapping[str, Floats] = field(default_factory=dict)

    def judged_by(self, criterion: str) -> Floats:
        """Return the accuracies that a criterion looks at."""
        if criterion not in COUNTED_BY:
            return self.accuracy
        return self.by_class.get(criterion, np.full(len(self.step), np.nan))

    def told_by(self, criterion: str) -> Mask:
        """Mark the rows that hold what a criterion looks at."""
        if criterion not in COUNTED_BY:
            return np.ones(len(self.step), dtype=bool)
        return ~np.isnan(self.judged_by(criterion))

    def of_subset(self, name: str) -> Mask:
        """Mark the rows that belong to a subset, no rows if its name is unknown."""
        if name not in self.subsets:
            return np.zeros(len(self.step), dtype=bool)
        return np.asarray(self.subset == list(self.subsets).index(name), dtype=bool)

    def last_steps(self) -> Ints:
        """Find the largest evaluated step of each run, -1 for one without rows."""
        steps = np.full(len(self.keys), -1, dtype=np.int64)
        np.maximum.at(steps, self.run, self.step)
        return steps

    def environments_of(self, rows: Mask) -> Ints:
        """Count the environments that each run has among those rows, at any step."""
        present = np.zeros((len(self.keys), max(len(self.environments), 1)), dtype=bool)
        present[self.run[rows], self.env[rows]] = True
        return np.asarray(present.sum(axis=1), dtype=np.int64)


def records_of(rows: pd.DataFrame, keys: Sequence[RunKey]) -> Records:
    """Convert rows of many runs to the columns that a selection takes.

    Args:
        rows: ``run`` (position in ``keys``), ``step``, ``env``, ``subset``, ``env_held_out``,
            ``seen``, ``wrong``.
        keys: one per run.
    """
    env = rows["env"].astype("category").cat
    subset = rows["subset"].astype("category").cat
    by_class = {}
    for criterion, column in COUNTED_BY.items():
        if column in rows:
            wrong = rows[column].to_numpy(dtype=np.float64)
            by_class[criterion] = 1 - wrong / rows["seen"].to_numpy()
    return Records(
        keys,
        list(map(str, env.categories)),
        list(map(str, subset.categories)),
        rows["run"].to_numpy(),
        rows["step"].to_numpy(),
        env.codes.to_numpy(),
        subset.codes.to_numpy(),
        rows["env_held_out"].to_numpy(),
        accuracies_of(rows),
        rows["seen"].to_numpy(),
        by_class,
    )


def accuracies_of(rows: pd.DataFrame) -> Floats:
    """Compute the fraction right of each row.

    It is ``accuracy`` if an importer read it, else 1 - ``wrong`` / ``seen``.
    """
    if "accuracy" in rows:
        return np.asarray(rows["accuracy"].to_numpy(), dtype=np.float64)
    return np.asarray(1 - rows["wrong"].to_numpy() / rows["seen"].to_numpy(), dtype=np.float64)


@dataclass(frozen=True)
class Scores:
    """Validation accuracy of runs at steps: one entry per (run, step), sorted so."""

    run: Ints
    step: Ints
    value: Floats


@dataclass(frozen=True)
class Choices:
    """What a method decided for each run; arrays have one entry per run."""

    steps: Ints  #: the evaluated step whose errors count, -1 if there is none
    accuracy: Floats  #: validation accuracy that the step has
    judged: Mask  #: False if the method has no accuracy
    reason: dict[int, str] = field(default_factory=dict)  #: run -> why it has no step


def scores(
    run: Ints,
    step: Ints,
    value: Floats,
    needed: Ints,
    weight: Floats | None = None,
    criterion: str = AVERAGE,
) -> Scores:
    """Average the values of each (run, step), dropping steps with fewer values than the run needs.

    Args:
        run, step, value: one entry per row.
        needed: number of values that a step of each run must have.
        weight: weights of the mean; equal ones by default.
        criterion: ``worst_environment`` and ``worst_group`` take the smallest value, NaN if one is,
            others the mean.
    """
    if not len(run):
        empty = np.zeros(0, dtype=np.int64)
        return Scores(empty, empty, np.zeros(0))
    key = run.astype(np.int64) * (int(step.max()) + 1) + step
    if np.any(key[1:] < key[:-1]):
        order = np.argsort(key, kind="stable")
        key = key[order]
        run = run[order]
        step = step[order]
        value = value[order]
        weight = None if weight is None else weight[order]
    first = np.r_[True, key[1:] != key[:-1]]
    group = np.cumsum(first) - 1
    count = np.bincount(group)
    if criterion in (WORST_ENVIRONMENT, WORST_GROUP):
        mean = np.minimum.reduceat(value, np.flatnonzero(first))
    elif weight is None:
        mean = np.bincount(group, weights=value) / count
    else:
        mean = np.bincount(group, weights=value * weight) / np.bincount(group, weights=weight)
    runs = run[first]
    complete = count >= needed[runs]
    return Scores(runs[complete], step[first][complete], mean[complete])


def first_best(accuracies: Scores, runs: int) -> tuple[Ints, Floats]:
    """Find each run's step with the highest value, the first on ties, NaN lowest.

    A run without steps has -1 and NaN.
    """
    steps = np.full(runs, -1, dtype=np.int64)
    best = np.full(runs, np.nan)
    if not len(accuracies.run):
        return steps, best
    value = np.where(np.isnan(accuracies.value), -np.inf, accuracies.value)
    starts = np.flatnonzero(np.r_[True, accuracies.run[1:] != accuracies.run[:-1]])
    lengths = np.diff(np.r_[starts, len(value)])
    top = np.flatnonzero(value == np.repeat(np.maximum.reduceat(value, starts), lengths))
    top = top[np.r_[True, accuracies.run[top][1:] != accuracies.run[top][:-1]]]
    steps[accuracies.run[top]] = accuracies.step[top]
    best[accuracies.run[top]] = accuracies.value[top]
    return steps, best

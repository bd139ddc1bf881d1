"""Evaluations of many runs as columns, and the arithmetic that every selection method shares.

One entry of a column is one :class:`dgbench.records.rows.Row`. Sums run in the order of the rows, which is that of
the given environments; that is how DomainBed sums, so equal records tie here exactly where they tie there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

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
    protocol: str = ""  #: draws are chosen within a protocol, while runs judge one another across them


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

    def of_subset(self, name: str) -> Mask:
        """Which rows belong to that subset."""
        if name not in self.subsets:
            return np.zeros(len(self.step), dtype=bool)
        return np.asarray(self.subset == list(self.subsets).index(name), dtype=bool)

    def last_steps(self) -> Ints:
        """The largest evaluated step of each run; -1 for one without rows."""
        steps = np.full(len(self.keys), -1, dtype=np.int64)
        np.maximum.at(steps, self.run, self.step)
        return steps

    def environments_of(self, rows: Mask) -> Ints:
        """How many environments each run has among those rows, at any step."""
        present = np.zeros((len(self.keys), max(len(self.environments), 1)), dtype=bool)
        present[self.run[rows], self.env[rows]] = True
        return np.asarray(present.sum(axis=1), dtype=np.int64)


def records_of(rows: pd.DataFrame, keys: Sequence[RunKey]) -> Records:
    """The columns that a selection takes.

    Args:
        rows: ``run`` (position in ``keys``), ``step``, ``env``, ``subset``, ``env_held_out``, ``seen``, ``wrong``.
        keys: one per run.
    """
    env, subset = (rows[name].astype("category").cat for name in ("env", "subset"))
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
    )


def accuracies_of(rows: pd.DataFrame) -> Floats:
    """Fraction right of each row: ``accuracy`` where an importer read it, or counted from ``wrong`` and ``seen``."""
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

    steps: Ints  #: the evaluated step whose errors count, -1 where there is none
    accuracy: Floats  #: validation accuracy that speaks for it
    judged: Mask  #: False where the method has no accuracy
    why: dict[int, str] = field(default_factory=dict)  #: run -> why it has no step


def scores(run: Ints, step: Ints, value: Floats, needed: Ints, weight: Floats | None = None) -> Scores:
    """Mean of the values of each (run, step), dropping steps with fewer values than the run needs.

    Args:
        run, step, value: one entry per row.
        needed: values that a step of each run must have.
        weight: weights of the mean; equal ones by default.
    """
    if not len(run):
        none = np.zeros(0, dtype=np.int64)
        return Scores(none, none, np.zeros(0))
    key = run.astype(np.int64) * (int(step.max()) + 1) + step
    if np.any(key[1:] < key[:-1]):
        order = np.argsort(key, kind="stable")
        key, run, step, value = key[order], run[order], step[order], value[order]
        weight = None if weight is None else weight[order]
    first = np.r_[True, key[1:] != key[:-1]]
    place = np.cumsum(first) - 1
    count = np.bincount(place)
    total = np.bincount(place, weights=value if weight is None else value * weight)
    mean = total / (count if weight is None else np.bincount(place, weights=weight))
    runs = run[first]
    whole = count >= needed[runs]
    return Scores(runs[whole], step[first][whole], mean[whole])


def first_best(accuracies: Scores, runs: int) -> tuple[Ints, Floats]:
    """The step with the highest value of each run, the first on ties, NaN lowest; -1 and NaN where it has none."""
    steps, best = np.full(runs, -1, dtype=np.int64), np.full(runs, np.nan)
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

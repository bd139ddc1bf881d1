"""Accuracies of every algorithm in and out of distribution, and the line through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.effective_robustness import Axes, Line, fit_line, outliers
from dgbench.analysis.evaluations import accuracies_of
from dgbench.errors import MeasureError
from dgbench.reports.groups import Group
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.selected import Selected, finished_rows


@dataclass(frozen=True, eq=False)
class Points:
    """The algorithms of one setting in one environment, or on average: means over seeds."""

    environment: str
    names: tuple[str, ...]
    inside: np.ndarray[Any, Any]  #: (A,) accuracies in distribution
    outside: np.ndarray[Any, Any]  #: (A,)
    line: Line | None  #: None if there are too few algorithms
    is_outlier: np.ndarray[Any, Any]  #: (A,)
    reason: str = ""  #: why there is no line

    @property
    def robustness(self) -> np.ndarray[Any, Any]:
        """(A,) effective robustness, NaN without a line."""
        if self.line is None:
            return np.full(len(self.names), np.nan)
        return np.asarray(self.outside - self.line.expected(self.inside))

    def leaving(self) -> list[int]:
        """List the positions of outliers, those farthest from the line first."""
        order = np.argsort(-np.abs(np.nan_to_num(self.robustness)), kind="stable")
        return [int(place) for place in order if self.is_outlier[place]]


def inside_by_run(collection: Collection, selected: Selected) -> pd.Series[Any]:
    """Average each run's accuracy in distribution, at its selected step, over its environments.

    Returns:
        run (position in ``selected.runs``) -> fraction right; runs without such rows are not there.
    """
    rows = finished_rows(collection)
    steps = np.array([run.step for run in selected.runs], dtype=np.int64)
    is_inside = (rows["subset"] == "val").to_numpy() & ~rows["env_held_out"].to_numpy()
    at_step = rows["step"].to_numpy() == steps[rows["run"].to_numpy()]
    rows = rows[is_inside & at_step]
    accuracies = pd.Series(accuracies_of(rows), rows["run"].to_numpy())
    means: pd.Series[Any] = accuracies.groupby(level=0).mean()
    return means.dropna()


def paired_lines(group: Group, inside: pd.Series[Any]) -> pd.DataFrame:
    """Pair the accuracies of every algorithm, seed and held-out environment.

    Returns:
        ``algorithm``, ``seed``, ``env``, ``inside`` and ``outside``: means over the runs that hold
        the environment out.
    """
    tests = group.tests
    tests = tests[(tests["role"] == "held_out") & tests["env_held_out"].astype(bool)]
    lines = tests.assign(inside=tests["run"].map(inside), outside=tests["accuracy"])
    lines = lines.dropna(subset=["inside", "outside"])
    keys = ["algorithm", "seed", "env"]
    means: pd.DataFrame = lines.groupby(keys, sort=True)[["inside", "outside"]].mean().reset_index()
    return means


def complete(lines: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Keep the algorithms and seeds that have every environment; and name who has none such."""
    environments = lines["env"].nunique()
    counts = lines.groupby(["algorithm", "seed"])["env"].transform("nunique")
    whole = lines[counts == environments]
    lacking = sorted(set(lines["algorithm"]) - set(whole["algorithm"]))
    return whole, lacking


def points_of(
    lines: pd.DataFrame, environment: str, axes: Axes, baselines: Sequence[str] | None
) -> Points:
    """Average the lines of each algorithm, and fit the line.

    Args:
        lines: of :func:`paired_lines`, of one environment or of all.
        environment: what they are called.
        axes: of the line.
        baselines: that it is fitted to; None: all algorithms.
    """
    # every environment counts the same, also where an algorithm has fewer seeds there
    by_env = lines.groupby(["algorithm", "env"])[["inside", "outside"]].mean()
    means = by_env.groupby("algorithm").mean()
    names = tuple(map(str, means.index))
    inside = means["inside"].to_numpy()
    outside = means["outside"].to_numpy()
    is_fitted = np.ones(len(names), dtype=bool)
    if baselines is not None:
        is_fitted = np.isin(names, list(baselines))
    no_outlier = np.zeros(len(names), dtype=bool)
    try:
        line = fit_line(inside[is_fitted], outside[is_fitted], axes)
        leaving = outliers(inside, outside, axes)
    except MeasureError as error:
        return Points(environment, names, inside, outside, None, no_outlier, str(error))
    return Points(environment, names, inside, outside, line, leaving)

"""What each measure predicts of the ideal: rank correlations, selections and what these cost.

Two long frames over any number of settings. Every table, figure and sentence on that, of one
setting, of several or beside the paper, is laid out from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis import degradation, kendall, select, spearman
from dgbench.analysis.accuracy import mean
from dgbench.errors import MeasureError
from dgbench.plan.measures import IDEAL, WORST
from dgbench.reports.over_seeds import algorithms_of, by_seed, seeds_of

#: coefficients of rank correlation by name
COEFFICIENTS: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "Spearman": spearman,
    "Kendall": kendall,
}
_CORRELATIONS = ("setting", "coefficient", "measure", "seed", "algorithms", "rho", "rho.reason")
_SELECTIONS = ("setting", "measure", "seed", "names", "cost")


def correlation_frame(studies: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Correlate the ranks of each measure with those of the ideal over the algorithms with both.

    Args:
        studies: of :class:`~dgbench.reports.evaluation.Evaluation`.
        measures: their names.

    Returns:
        One line per setting, coefficient, measure and seed: ``setting``, ``coefficient``,
        ``measure``, ``seed``, ``algorithms`` (how many have both), ``rho`` (NaN if there is none)
        and ``rho.reason`` (why).
    """
    lines: list[tuple[Any, ...]] = []
    for setting, of_setting in studies.groupby("setting", sort=False):
        ideal = by_seed(of_setting, IDEAL)
        seeds = seeds_of(of_setting)
        for coefficient, correlate in COEFFICIENTS.items():
            for measure in measures:
                values = by_seed(of_setting, measure)
                names = values.index.intersection(ideal.index)
                first = values.loc[names].to_numpy()
                second = ideal.loc[names].to_numpy()
                for column, seed in enumerate(seeds):
                    usable = ~np.isnan(first[:, column] + second[:, column])
                    rho = math.nan
                    reason = None
                    try:
                        rho = correlate(
                            first[usable, column].tolist(), second[usable, column].tolist()
                        )
                    except MeasureError as problem:
                        reason = str(problem)
                    count = int(usable.sum())
                    lines.append((setting, coefficient, measure, seed, count, rho, reason))
    return pd.DataFrame(lines, columns=list(_CORRELATIONS)).astype({"rho": "float64"})


def selection_frame(studies: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Find whom each measure selects among the candidates, and what that costs.

    Args:
        studies: of :class:`~dgbench.reports.evaluation.Evaluation`.
        measures: their names.

    Returns:
        One line per setting, measure and seed, and one on the mean over seeds, whose ``seed`` is
        missing: ``setting``, ``measure``, ``seed``, ``names`` (the algorithms with the lowest
        value, all that tie; empty without a choice) and ``cost`` (ideal error of the first one
        less the lowest, a fraction; NaN if it is not known).
    """
    lines: list[tuple[Any, ...]] = []
    for setting, of_setting in studies.groupby("setting", sort=False):
        pools = candidates(of_setting)
        ideal = _levels(of_setting, IDEAL, pools)
        for measure in measures:
            for seed, level in _levels(of_setting, measure, pools).items():
                names = select(level) if level else ()
                cost = math.nan
                if names and names[0] in ideal[seed]:
                    cost = degradation(ideal[seed], names[0])
                lines.append((setting, measure, seed, names, cost))
    frame = pd.DataFrame(lines, columns=list(_SELECTIONS))
    return frame.astype({"seed": "Int64", "cost": "float64"})


def of_measure(lines: pd.DataFrame, measure: str, coefficient: str | None = None) -> pd.DataFrame:
    """Restrict :func:`correlation_frame` to a measure, and to a coefficient."""
    wanted = lines["measure"] == measure
    if coefficient is not None:
        wanted &= lines["coefficient"] == coefficient
    return lines[wanted]


def selected(selections: pd.DataFrame, measure: str, seed: int | None = None) -> tuple[str, ...]:
    """Return whom a measure selects in the one setting of a frame; empty if there is no choice.

    Args:
        selections: of :func:`selection_frame`.
        measure: its name.
        seed: by this one; None on the mean over seeds.
    """
    by_it = selections["measure"] == measure
    over = selections["seed"].isna() if seed is None else selections["seed"] == seed
    names: list[tuple[str, ...]] = selections.loc[by_it & over, "names"].tolist()
    return names[0] if names else ()


def costs(selections: pd.DataFrame, measure: str, on_mean: bool = False) -> list[float]:
    """List what the selections by a measure cost, where that is known.

    Args:
        selections: of :func:`selection_frame`.
        measure: its name.
        on_mean: those on the mean over seeds; else those by each seed.
    """
    wanted = (selections["measure"] == measure) & (selections["seed"].isna() == on_mean)
    known: list[float] = selections.loc[wanted, "cost"].dropna().tolist()
    return known


def why_no_ideal(studies: pd.DataFrame) -> str:
    """Return why no study of a setting has an ideal error, or an empty text if one has."""
    if studies[IDEAL].notna().any():
        return ""
    texts = studies[f"{IDEAL}.reason"]
    said = (text for text in texts if isinstance(text, str) and text)
    return next(said, "no ideal errors")


def candidates(studies: pd.DataFrame) -> dict[int | None, list[str]]:
    """Map each seed, and None for the mean over seeds -> the algorithms that may be chosen among.

    They are those whose practical measures, and ideal where it is known at all, exist for that
    seed, or for every one: a measure must not be blamed for missing an algorithm it could not
    judge. One candidate among several algorithms is no choice, so then there is none.
    """
    names = algorithms_of(studies)
    present = by_seed(studies, WORST).reindex(names).notna()
    ideal = by_seed(studies, IDEAL).reindex(names).notna()
    if ideal.to_numpy().any():
        present = present & ideal
    masks: dict[int | None, Any] = {**present, None: present.all(axis=1)}
    fewest = min(2, len(names))
    pools = {}
    for seed, mask in masks.items():
        pool = list(present.index[mask])
        pools[seed] = pool if len(pool) >= fewest else []
    return pools


def _levels(
    studies: pd.DataFrame, measure: str, pools: Mapping[int | None, Sequence[str]]
) -> dict[int | None, dict[str, float]]:
    """Map each seed, and None for the mean over seeds -> algorithm of its pool -> its value."""
    values = by_seed(studies, measure)
    lines = dict(zip(values.index, values.to_numpy().tolist(), strict=True))
    levels: dict[int | None, dict[str, float]] = {}
    # seeds in the order of the columns, then their mean
    for column, (seed, pool) in enumerate(pools.items()):
        levels[seed] = {}
        place = slice(None) if seed is None else slice(column, column + 1)
        for name in pool:
            of_seeds = lines[name][place] if name in lines else [math.nan]
            if not any(map(math.isnan, of_seeds)):
                levels[seed][name] = mean(of_seeds)
    return levels

"""How well two measures agree on the order of the algorithms, and how sure that is.

Algorithms and seeds are resampled, each on its own. The percentile interval is used as it is: with
8 to 30 algorithms it covers 93 to 99% where 95% are meant (the tests measure it), the duplicates of
a resample counting as ties.

Source: Efron & Tibshirani 1993, chapter 13; Owen 2007, "The pigeonhole bootstrap".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dgbench.analysis.distributions import kendall_tau_b, rankdata
from dgbench.analysis.intervals import Floats, Interval, counts_of, interval_of, whole
from dgbench.errors import MeasureError

ByAlgorithm = Mapping[str, float] | Sequence[float]


def spearman(first: ByAlgorithm, second: ByAlgorithm) -> float:
    """Compute Spearman's rank correlation rho in [-1, 1]; ties get their mean rank (scipy).

    Args:
        first: measure of each algorithm: a mapping from its name, or a sequence in one fixed order.
        second: the other measure of the same algorithms.

    Raises:
        MeasureError: fewer than 2 algorithms, other algorithms in one than in the other, NaN, or
            one measure equal for all algorithms (it orders nothing).
    """
    a, b = _paired(first, second)
    # spearmanr does this, and a test that costs ten times it
    return float(np.corrcoef(rankdata(a), rankdata(b))[1, 0])


def kendall(first: ByAlgorithm, second: ByAlgorithm) -> float:
    """Compute Kendall's rank correlation tau-b in [-1, 1], which corrects for ties (scipy).

    Args and Raises as :func:`spearman`.
    """
    return kendall_tau_b(*_paired(first, second))


def _paired(first: ByAlgorithm, second: ByAlgorithm) -> tuple[list[float], list[float]]:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        if first.keys() != second.keys():
            unshared = ", ".join(sorted(first.keys() ^ second.keys()))
            raise MeasureError(
                f"the two measures cover different algorithms ({unshared}); give both for the "
                "same ones"
            )
        names = sorted(first)
        a = [float(first[name]) for name in names]
        b = [float(second[name]) for name in names]
    elif isinstance(first, Mapping) or isinstance(second, Mapping):
        raise MeasureError(
            "one measure has algorithm names and the other has none; pass two mappings or two "
            "sequences"
        )
    else:
        a = [float(value) for value in first]
        b = [float(value) for value in second]
    if len(a) != len(b):
        raise MeasureError(
            f"{len(a)} values against {len(b)}; give both measures for the same algorithms"
        )
    if len(a) < 2:
        raise MeasureError(
            f"a rank correlation needs 2 or more algorithms, got {len(a)}; train another algorithm"
        )
    if any(math.isnan(value) for value in a + b):
        raise MeasureError("a measure is NaN; leave that algorithm out of both")
    if len(set(a)) == 1 or len(set(b)) == 1:
        raise MeasureError(
            "a measure is equal for all algorithms and orders nothing; compare more algorithms"
        )
    return a, b


Coefficient = Literal["spearman", "kendall"]


def correlation_interval(
    first: ArrayLike,
    second: ArrayLike,
    rng: np.random.Generator,
    *,
    coefficient: Coefficient = "spearman",
    draws: int = 1000,
    level: float = 0.95,
) -> Interval:
    """Estimate the rank correlation of two measures, mean over seeds, with its interval.

    Algorithms and seeds are resampled.

    Args:
        first, second: (A, S) the two measures of A algorithms for S seeds; the same algorithms are
            drawn for every seed. Resamples in which a measure orders nothing are left out.
        rng, draws, level: as :func:`resample`.

    Raises:
        MeasureError: fewer than 3 algorithms, a missing value, or a measure that orders nothing.
    """
    estimates, drawn = _correlations([first], second, rng, coefficient, draws)
    finite = drawn[0][np.isfinite(drawn[0])]
    return interval_of(float(estimates[0]), finite, level, inside=True)


def correlation_difference(
    first: ArrayLike,
    other: ArrayLike,
    ideal: ArrayLike,
    rng: np.random.Generator,
    *,
    draws: int = 1000,
    level: float = 0.95,
) -> Interval:
    """Subtract the other measure's Spearman correlation with the ideal from the first's.

    Both are taken over the same resamples.

    Args and Raises as :func:`correlation_interval`.
    """
    estimates, drawn = _correlations([first, other], ideal, rng, "spearman", draws)
    differences = drawn[0] - drawn[1]
    finite = differences[np.isfinite(differences)]
    return interval_of(float(estimates[0] - estimates[1]), finite, level, inside=True)


def pick_probability(
    measure: ArrayLike,
    ideal: ArrayLike,
    rng: np.random.Generator,
    *,
    draws: int = 1000,
) -> float:
    """Estimate the probability that the lowest measure picks the lowest ideal error.

    Seeds and algorithms are resampled: it is the chance for another set of candidates and seeds
    like these, both measures averaged over the drawn seeds. Tied algorithms share the choice. A
    resample of fewer than 2 algorithms leaves nothing to select and does not count; NaN if none
    counts.

    Args:
        measure, ideal: (A, S) values of A algorithms for S seeds.
        rng, draws: as :func:`resample`.
    """
    a = np.asarray(measure, dtype=float)
    b = np.asarray(ideal, dtype=float)
    seeds = counts_of(rng, draws, a.shape[1]) / a.shape[1]
    drawn = counts_of(rng, draws, a.shape[0]) > 0
    selected = _lowest(np.where(drawn, seeds @ a.T, np.inf))
    truth = _lowest(np.where(drawn, seeds @ b.T, np.inf))
    agree = (selected & truth).sum(axis=1) / selected.sum(axis=1)
    selectable = drawn.sum(axis=1) > 1
    return float(agree[selectable].mean()) if selectable.any() else math.nan


def _correlations(
    measures: Sequence[ArrayLike],
    ideal: ArrayLike,
    rng: np.random.Generator,
    coefficient: Coefficient,
    draws: int,
) -> tuple[Floats, Floats]:
    """Correlate each measure with the ideal, mean over seeds.

    These are (M,) correlations as they are and (M, draws) resampled.
    """
    tables = [whole(values) for values in (*measures, ideal)]
    first_shape = tables[0].shape
    alike = all(table.shape == first_shape for table in tables)
    if not alike or len(first_shape) != 2 or first_shape[0] < 3:
        shapes = ", ".join(str(table.shape) for table in tables)
        raise MeasureError(
            "an interval needs 3 or more algorithms by seeds, the same in each measure, got "
            f"{shapes}"
        )
    algorithms, seeds = tables[0].shape
    correlate = _spearman if coefficient == "spearman" else _kendall
    # the first line is the sample
    counts = np.vstack([np.ones((1, algorithms)), counts_of(rng, draws, algorithms)])
    weights = np.vstack([np.ones((1, seeds)), counts_of(rng, draws, seeds)]) / seeds
    signs = [np.sign(table[:, None, :] - table[None, :, :]) for table in tables]
    coefficients = np.empty((len(measures), draws + 1))
    for index in range(len(measures)):
        per_seed = []
        for seed in range(seeds):
            per_seed.append(correlate(signs[index][..., seed], signs[-1][..., seed], counts))
        weighted = np.where(weights > 0, weights * np.stack(per_seed, axis=1), 0.0)
        coefficients[index] = weighted.sum(axis=1)
    if not np.isfinite(coefficients[:, 0]).all():
        raise MeasureError(
            "a measure is equal for all algorithms and orders nothing; compare more algorithms"
        )
    return coefficients[:, 0], coefficients[:, 1:]


def _lowest(values: Floats) -> NDArray[np.bool_]:
    return np.asarray(values <= values.min(axis=1, keepdims=True) + 1e-12)


def _spearman(first: Floats, second: Floats, counts: NDArray[Any]) -> Floats:
    """Correlate mean ranks (Pearson), weighted by counts.

    Rank i is (n + 1 + sum_j counts_j sign_ij) / 2.
    """
    # ranks less their mean, twice
    a = counts @ first.T
    b = counts @ second.T
    covariance = (counts * a * b).sum(axis=1)
    spread = (counts * a * a).sum(axis=1) * (counts * b * b).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(covariance / np.sqrt(spread))


def _kendall(first: Floats, second: Floats, counts: NDArray[Any]) -> Floats:
    def pairs(signs: Floats) -> Floats:
        return np.asarray(((counts @ signs) * counts).sum(axis=1))

    with np.errstate(divide="ignore", invalid="ignore"):
        norm = np.sqrt(pairs(first * first) * pairs(second * second))
        return np.asarray(pairs(first * second) / norm)

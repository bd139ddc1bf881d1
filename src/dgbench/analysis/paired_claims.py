"""What trials decide of the order of algorithms, and what draws of hyperparameters gain.

Trials (seeds) pair the algorithms: all of one trial share splits and, where it is drawn, data.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dgbench.analysis.distributions import t
from dgbench.analysis.intervals import Floats


def paired_p_values(values: ArrayLike) -> Floats:
    """Compute two-sided p-values of paired t-tests of every two algorithms.

    Over several datasets the mean difference is tested; its variance is estimated from all of them,
    whose trials are independent, and has the degrees of freedom of Satterthwaite 1946. Two
    algorithms that differ by the same amount in every trial have no estimate of chance: p is 1.

    Args:
        values: (A, S) values of A algorithms in S trials, 2 or more; or (D, A, S) of D datasets.

    Returns:
        (A, A), 1 on the diagonal.
    """
    table = np.asarray(values, dtype=float)
    table = table[None] if table.ndim == 2 else table
    datasets, algorithms, trials = table.shape
    p_values = np.ones((algorithms, algorithms))
    for first in range(algorithms - 1):
        differences = table[:, first + 1 :] - table[:, first : first + 1]
        means = differences.mean(axis=2).mean(axis=0)
        variances = differences.var(axis=2, ddof=1) / trials
        total = variances.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            freedom = total**2 / (variances**2 / (trials - 1)).sum(axis=0)
            p = 2 * t.sf(np.abs(means) / (np.sqrt(total) / datasets), freedom)
        p = np.where(total > 1e-24, p, 1.0)
        p_values[first, first + 1 :] = p
        p_values[first + 1 :, first] = p
    return np.nan_to_num(p_values, nan=1.0)


def unpaired_p_values(values: ArrayLike) -> Floats:
    """Compute (A, A) two-sided p-values of Welch's tests of (A, S) values: what a table of means
    and error bars could tell.
    """
    from dgbench.analysis.comparison import welch

    table = np.asarray(values, dtype=float)
    return welch(table.mean(axis=1), table.std(axis=1, ddof=1), table.shape[1])


def chances_of_ranks(draws: int, subset: int) -> Floats:
    """Compute the probability that each draw is the best one of a random subset.

    Args:
        draws: number n of draws, ranked from the best to the worst.
        subset: number k of them that are tried, all subsets equally likely; at most n.

    Returns:
        (n,): C(n - i, k - 1) / C(n, k) for the i-th, i from 1.
    """
    subset = min(subset, draws)
    ways = [math.comb(draws - rank, subset - 1) for rank in range(1, draws + 1)]
    total = math.comb(draws, subset)
    return np.array([way / total for way in ways])


def ranked_by(validation: ArrayLike, results: ArrayLike) -> Floats:
    """Order the results of searches by validation accuracy, the best first.

    Args:
        validation: (Q, n) accuracies that choose, of Q searches with n draws each; of equal ones
            the later draw comes first, as in DomainBed.
        results: (Q, n) what a choice yields.
    """
    keys = np.asarray(validation, dtype=float)
    order = np.argsort(keys[:, ::-1] * -1, axis=1, kind="stable")
    return np.asarray(np.take_along_axis(np.asarray(results)[:, ::-1], order, axis=1))


def expected_result(ranked: ArrayLike, subset: int) -> Floats:
    """Compute the (Q,) expected results of choosing among random subsets of draws, exactly.

    Args:
        ranked: (Q, n) of :func:`ranked_by`.
        subset: number of draws that are tried.
    """
    table = np.asarray(ranked, dtype=float)
    return np.asarray(table @ chances_of_ranks(table.shape[1], subset))


def same_leader(
    ranked: ArrayLike, algorithm: ArrayLike, subset: int, rng: np.random.Generator, samples: int
) -> float:
    """Estimate how often the algorithm that leads with all draws leads with random subsets, too.

    Args:
        ranked: (Q, n) of :func:`ranked_by`.
        algorithm: (Q,) whose search it is; its searches count the same.
        subset: number of draws that are tried in each search.
        rng: of the subsets.
        samples: number of studies that are drawn.
    """
    table = np.asarray(ranked, dtype=float)
    names, codes = np.unique(np.asarray(algorithm), return_inverse=True)
    sizes = np.bincount(codes, minlength=len(names))
    leader = int(np.argmax(np.bincount(codes, table[:, 0]) / sizes))
    chances = chances_of_ranks(table.shape[1], subset)
    searches = np.arange(len(table))
    agreeing = 0
    for _ in range(samples):
        places = rng.choice(len(chances), len(table), p=chances)
        means = np.bincount(codes, table[searches, places]) / sizes
        agreeing += int(np.argmax(means)) == leader
    return agreeing / samples

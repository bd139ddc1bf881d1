"""Concept and covariate shift of classifiers that are known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dgbench.shift.concept import concept, disagreement, discrepancy
from tests.shift.fixed_sets import normal_quantiles

# four values of x, p = (.4 .3 .2 .1), q = (.1 .2 .3 .4)
X_P, X_Q = np.repeat(np.arange(4), [4, 3, 2, 1]), np.repeat(np.arange(4), [1, 2, 3, 4])
F_TR, F_TE = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])


def test_four_values() -> None:
    found = concept(F_TR[X_P], F_TE[X_P], F_TR[X_Q], F_TE[X_Q])
    assert found == pytest.approx({"l_tr": 0.3, "l_te": 0.2, "min": 0.2, "max": 0.3})
    swapped = concept(F_TR[X_Q], F_TE[X_Q], F_TR[X_P], F_TE[X_P])
    assert swapped == pytest.approx({"l_tr": 0.2, "l_te": 0.3, "min": 0.2, "max": 0.3})
    h = np.array([0, 0, 0, 1])
    assert disagreement(h[X_P], F_TR[X_P]) == pytest.approx(0.2)
    assert disagreement(h[X_Q], F_TE[X_Q]) == pytest.approx(0.5)


def test_two_normals() -> None:
    """f_tr = 1[x > 0], f_te = 1[x > 1/2] on N(0, 1) and N(1, 1); the total variation is 0.383."""
    p, q = normal_quantiles(0, 100_001), normal_quantiles(1, 100_001)
    found = concept(p > 0, p > 0.5, q > 0, q > 0.5)
    assert (found["l_tr"], found["l_te"]) == pytest.approx((0.191462461, 0.149882285), abs=2e-5)
    assert found["max"] - found["min"] < 0.382924923


def test_discrepancy_of_two_classifiers_and_of_all() -> None:
    """0.1 = |0.3 - 0.2| over two classifiers; over all 16 functions the total variation, 0.4."""
    x_p, x_q = np.repeat(X_P, 4000), np.repeat(X_Q, 4000)
    two = np.stack([F_TR, F_TE])
    every = np.array(list(product([0, 1], repeat=4)))
    for functions, value in ((two, 0.1), (every, 0.4)):
        rng = np.random.default_rng(0)
        assert discrepancy(functions[:, x_p], functions[:, x_q], rng) == pytest.approx(
            value, abs=0.015
        )
        assert discrepancy(functions[:, x_q], functions[:, x_p], rng) == pytest.approx(
            value, abs=0.015
        )


def test_the_largest_of_many_noisy_differences_is_no_discrepancy() -> None:
    """Ten classifiers that guess, no shift: the value on the images that chose the pair would be
    0.14 on average.
    """
    found, naive = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        on_p, on_q = rng.integers(2, size=(2, 10, 100))
        found.append(discrepancy(on_p, on_q, rng))
        naive.append(
            max(
                abs(disagreement(on_p[a], on_p[b]) - disagreement(on_q[a], on_q[b]))
                for a, b in PAIRS
            )
        )
    assert np.mean(naive) > 0.12
    assert abs(np.mean(found)) < 0.02  # a standard deviation of 0.1 each: 3.5 standard errors
    assert min(found) < -0.05


PAIRS = [(a, b) for a in range(10) for b in range(a)]


def test_classifiers_that_agree() -> None:
    same = np.zeros((3, 8), dtype=int)
    assert discrepancy(same, same, np.random.default_rng(0)) == 0

"""Paired orders and subsets of draws, against scipy, counting by hand, and a known truth."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_rel

from dgbench.analysis.comparison import holm
from dgbench.analysis.paired_claims import (
    chances_of_ranks,
    expected_result,
    paired_p_values,
    ranked_by,
    same_leader,
)


def test_p_values_are_those_of_scipy() -> None:
    values = np.random.default_rng(0).normal(size=(4, 5))
    p_values = paired_p_values(values)
    for first, second in combinations(range(4), 2):
        expected = ttest_rel(values[first], values[second]).pvalue
        assert p_values[first, second] == pytest.approx(expected, rel=1e-9)
        assert p_values[second, first] == p_values[first, second]


def test_a_constant_difference_is_not_decided() -> None:
    assert paired_p_values([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]])[0, 1] == 1


def test_datasets_of_equal_spread_add_their_degrees_of_freedom() -> None:
    """Differences of one variance in two datasets: as one sample of them, centered."""
    first = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    second = np.array([[0.0, 0.0, 0.0], [2.0, 3.0, 4.0]])
    p = paired_p_values(np.stack([first, second]))[0, 1]
    # mean 2.5, standard error sqrt(1/3 + 1/3) / 2, 4 degrees of freedom
    sample = np.array([1.0, -1.0, 1.0, -1.0, 0.0])  # deviation 1 with 4 degrees of freedom
    shift = 2.5 / (np.sqrt(2 / 3) / 2) / np.sqrt(5)
    assert p == pytest.approx(ttest_1samp(sample + shift, 0).pvalue, rel=1e-9)


def test_level_and_power_of_paired_claims() -> None:
    """8 equal algorithms share trial effects; then one is better."""
    rng = np.random.default_rng(1)
    above = np.triu_indices(8, 1)
    alone = []
    jointly = 0
    found = 0
    for _ in range(300):
        trials = rng.normal(0, 0.05, size=(1, 5))
        values = 0.3 + trials + 0.01 * rng.standard_normal((8, 5))
        p_values = paired_p_values(values)
        alone.append((p_values[above] < 0.05).mean())
        jointly += bool((holm(p_values[above]) < 0.05).any())
        values[0] -= 0.04
        found += bool(paired_p_values(values)[0, 1] < 0.05)
    assert 0.035 < np.mean(alone) < 0.065
    assert jointly / 300 < 0.08
    assert found / 300 > 0.95


@pytest.mark.parametrize("subset", [1, 2, 3, 5])
def test_chances_of_ranks_are_those_of_counting(subset: int) -> None:
    subsets = list(combinations(range(5), subset))
    counted = [sum(min(chosen) == rank for chosen in subsets) / len(subsets) for rank in range(5)]
    assert chances_of_ranks(5, subset) == pytest.approx(counted)


def test_expected_results_are_means_over_all_subsets() -> None:
    rng = np.random.default_rng(2)
    validation = rng.permuted(np.tile(np.arange(6.0), (3, 1)), axis=1)
    accuracy = rng.random((3, 6))
    ranked = ranked_by(validation, accuracy)
    for subset in (1, 2, 4, 6):
        chosen = []
        for draws in combinations(range(6), subset):
            best = np.array(draws)[validation[:, draws].argmax(axis=1)]
            chosen.append(accuracy[np.arange(3), best])
        assert expected_result(ranked, subset) == pytest.approx(np.mean(chosen, axis=0))


def test_the_later_of_equal_draws_is_chosen() -> None:
    assert ranked_by([[0.5, 0.5, 0.4]], [[1, 2, 3]]).tolist() == [[2, 1, 3]]


def test_all_draws_have_the_same_leader() -> None:
    rng = np.random.default_rng(3)
    ranked = rng.random((12, 6))
    names = ["a", "b", "c"] * 4
    assert same_leader(ranked, names, 6, rng, 50) == 1
    assert same_leader(ranked, names, 1, rng, 200) < 1

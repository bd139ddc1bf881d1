"""The bootstrap against cases with known answers: arithmetic, coverage on synthetic data, scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from dgbench.analysis import (
    correlation_difference,
    correlation_interval,
    pick_probability,
    resample,
)
from dgbench.analysis.intervals import Interval, widening
from dgbench.errors import MeasureError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_widening_by_hand() -> None:
    """3 units: sqrt(3/2) * 4.303 / 1.960 = 2.689."""
    assert widening(3, 0.95) == pytest.approx(2.689, abs=1e-3)
    assert widening(10_000, 0.95) == pytest.approx(1, abs=1e-3)


def test_a_constant_difference_has_no_width_because_seeds_are_paired() -> None:
    seeds = rng().normal(size=4)
    found = resample(["a", "b"], [seeds, seeds + 0.1], rng())
    difference = found.difference("b", "a")
    assert (difference.estimate, difference.low, difference.high) == pytest.approx((0.1, 0.1, 0.1))
    assert difference.excludes_zero
    assert np.quantile(found.draws[:, 0], 0.975) - np.quantile(found.draws[:, 0], 0.025) > 0.5
    assert (found.ranks()["b"].low, found.ranks()["b"].high) == (2, 2)


def test_the_same_generator_gives_the_same_numbers() -> None:
    values = rng(1).normal(size=(3, 5))
    first, second = (resample("abc", values, rng(7)).difference("a", "c") for _ in range(2))
    assert first == second
    assert first != resample("abc", values, rng(8)).difference("a", "c")


def test_differences_to_several_are_those_to_each() -> None:
    found = resample("abcd", rng(1).normal(size=(4, 5)), rng(7))
    to_d, to_a = found.differences("b", ["d", "a"]).tolist()
    assert Interval(*to_d, 0.95) == found.difference("b", "d")
    assert Interval(*to_a, 0.95) == found.difference("b", "a")
    drawn = found.draws[:, 1] - found.draws[:, 3]
    assert to_d == [found.estimate[1] - found.estimate[3], *np.quantile(drawn, [0.025, 0.975])]


@pytest.mark.parametrize("draws", [1, 2, 7, 100, 1000])
@pytest.mark.parametrize("level", [0.3, 0.9, 0.95, 0.9999])
def test_many_differences_are_numpys_quantiles_bit_for_bit(draws: int, level: float) -> None:
    """70 algorithms are three blocks."""
    names = [f"a{index}" for index in range(70)]
    found = resample(names, rng(1).normal(size=(70, 3)), rng(7), draws=draws, level=level)
    ends = found.differences("a3", names)
    drawn = found.draws[:, [3]] - found.draws
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    assert ends[:, 1].tolist() == low.tolist()
    assert ends[:, 2].tolist() == high.tolist()


@pytest.mark.parametrize(("seeds", "low"), [(2, 0.88), (3, 0.9), (5, 0.9), (10, 0.9)])
def test_differences_over_seeds_cover(seeds: int, low: float) -> None:
    """400 data sets of two equal algorithms that share seed effects: 95% intervals contain 0 in 90
    to 99% of them.
    """
    source = rng(seeds)
    hits = 0
    for _ in range(400):
        values = source.normal(size=(2, seeds)) + source.normal(size=(1, seeds))
        found = resample("ab", values, source, draws=400).difference("a", "b")
        hits += found.low <= 0 <= found.high
    assert low <= hits / 400 <= 0.99


def test_differences_over_seeds_and_folds_never_cover_too_little() -> None:
    """Crossed effects of seeds and folds: resampling both is conservative (Owen 2007), so at least
    nominal.
    """
    source = rng(3)
    hits = 0
    for _ in range(300):
        parts = [source.normal(size=shape) for shape in ((2, 3, 1), (2, 1, 4), (2, 3, 4))]
        found = resample("ab", parts[0] + parts[1] + parts[2], source, draws=400).difference(
            "a", "b"
        )
        hits += found.low <= 0 <= found.high
    assert hits / 300 >= 0.95


@pytest.mark.parametrize("coefficient", ["spearman", "kendall"])
@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_correlations_cover(coefficient: str, rho: float) -> None:
    """14 algorithms of a binormal population, whose rank correlations are 6/pi asin(rho/2) and 2/pi
    asin(rho).
    """
    truth = (
        6 / np.pi * np.arcsin(rho / 2) if coefficient == "spearman" else 2 / np.pi * np.arcsin(rho)
    )
    source = rng(5)
    hits = 0
    for _ in range(400):
        x, y = source.normal(size=(2, 14))
        y = rho * x + np.sqrt(1 - rho**2) * y
        found = correlation_interval(
            x[:, None], y[:, None], source, coefficient=coefficient, draws=400
        )  # type: ignore[arg-type]
        hits += found.low <= truth <= found.high
    assert 0.9 <= hits / 400 <= 0.99


def test_estimates_are_scipys_even_with_ties() -> None:
    first, second = rng(2).integers(0, 5, size=(2, 9, 3)).astype(float)
    for coefficient, peer in (("spearman", spearmanr), ("kendall", kendalltau)):
        expected = np.mean([peer(first[:, s], second[:, s]).statistic for s in range(3)])
        found = correlation_interval(first, second, rng(), coefficient=coefficient)  # type: ignore[arg-type]
        assert found.estimate == pytest.approx(expected)
        assert found.low <= found.estimate <= found.high


def test_difference_of_equal_measures_is_nothing() -> None:
    first, ideal = rng(2).normal(size=(2, 8, 2))
    found = correlation_difference(first, first, ideal, rng())
    assert (found.estimate, found.low, found.high) == (0, 0, 0)
    better = correlation_difference(ideal, -ideal, ideal, rng())
    assert better.low > 0


def test_chance_of_a_correct_selection() -> None:
    """The ideal itself is always right; its opposite never; a constant is right once in the number
    drawn.
    """
    ideal = np.arange(6.0)[:, None] + np.zeros((6, 3))
    assert pick_probability(ideal, ideal, rng()) == 1
    assert pick_probability(-ideal, ideal, rng()) == 0
    assert 0.2 < pick_probability(np.zeros((6, 3)), ideal, rng()) < 0.35


def test_what_cannot_be_resampled() -> None:
    with pytest.raises(MeasureError, match=r"1 seed: nothing.*resampled; train.*seeds"):
        resample("ab", [[0.1], [0.2]], rng())
    with pytest.raises(MeasureError, match="lacks a value"):
        resample("ab", [[0.1, np.nan], [0.2, 0.1]], rng())
    with pytest.raises(MeasureError, match="3 or more algorithms"):
        correlation_interval([[0.1, 0.2]], [[0.1, 0.2]], rng())
    with pytest.raises(MeasureError, match="orders nothing"):
        correlation_interval(np.ones((4, 2)), rng().normal(size=(4, 2)), rng())

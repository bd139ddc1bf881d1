"""Evidence that may be looked at after every seed: by hand, over all outcomes, and another
package's numbers.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad, trapezoid
from scipy.stats import t

from dgbench.analysis import bounded_evidence, evidence, sign_evidence
from dgbench.analysis.evidence import bounded_e_process, e_process, fewest_seeds
from dgbench.analysis.measures import worst_gap
from dgbench.errors import MeasureError
from dgbench.plan.measures import choose


def test_an_e_value_by_numerical_integration() -> None:
    """The likelihood ratio of (x, y) is an integral over deviation (1 / s) and standardized mean
    (half-normal).
    """
    x, y = 1.0, 0.4
    deviations = np.exp(np.linspace(-6, 8, 2001))
    sizes = np.linspace(0, 40, 4001)

    def density(size: np.ndarray) -> np.ndarray:
        """Over the right Haar measure; ds / s is d log s."""
        s = deviations[:, None]
        likelihood = np.exp(-((x - size * s) ** 2 + (y - size * s) ** 2) / (2 * s**2)) / s**2
        return trapezoid(likelihood, np.log(deviations), axis=0)

    prior = 2 * np.exp(-(sizes**2) / 20) / math.sqrt(20 * math.pi)
    ratio = trapezoid(prior * density(sizes), sizes) / density(np.zeros(1))[0]
    assert evidence([x, y]) == pytest.approx(ratio, rel=1e-3)


@pytest.mark.parametrize("alpha", [0.05, 0.025, 0.05 / 13])
def test_who_looks_after_every_seed_is_misled_no_more_often_than_stated(alpha: float) -> None:
    """10,000 studies without a difference, looked at after each of 100 seeds, beside the t-test
    looked at so.
    """
    rng, trials = np.random.default_rng(7), 10_000
    values = rng.normal(size=(trials, 100))
    misled = (e_process(values) >= 1 / alpha).any(axis=1).mean()
    assert misled <= alpha + 4 * math.sqrt(alpha / trials)
    counts = np.arange(2, 101)
    mean = np.cumsum(values, axis=1)[:, 1:] / counts
    variance = (np.cumsum(values**2, axis=1)[:, 1:] - counts * mean**2) / (counts - 1)
    by_t = (t.sf(mean / np.sqrt(variance / counts), counts - 1) <= alpha).any(axis=1).mean()
    assert by_t > 3 * alpha  # what the e-process is for
    worse = (e_process(values - 0.3) >= 1 / alpha).any(axis=1).mean()
    assert worse <= misled  # a mean below 0 misleads no more often than one of 0


def test_power_of_looking_after_every_seed() -> None:
    """Of differences of 2 deviations nearly all are found within 12 seeds; equal values are no
    evidence.
    """
    values = np.random.default_rng(3).normal(size=(4000, 12)) + 2
    assert (e_process(values) >= 40).any(axis=1).mean() > 0.97
    assert evidence([0.0, 0.0, 0.0]) < 1
    assert evidence([-1.0, -2.0, -1.5]) < 1 < evidence([1.0, 2.0, 1.5])


def skewed(rng: np.random.Generator, studies: int, seeds: int) -> np.ndarray:
    """Differences of mean 0: 40% less an error that is 39% but in one seed of fifty, where it is
    89%.
    """
    failed = rng.random((studies, seeds)) < 0.02
    return 0.01 - 0.5 * failed + 0.005 * rng.normal(size=(studies, seeds))


def test_rare_failures_mislead_evidence_that_takes_differences_for_normal() -> None:
    """A rival of the same mean that fails in 2% of the seeds is called better in most studies of 30
    seeds.
    """
    differences = skewed(np.random.default_rng(5), 2000, 30)
    assert (e_process(differences) >= 40).any(axis=1).mean() > 0.7
    assert (bounded_e_process(differences, 1.0) >= 40).any(axis=1).mean() <= 0.025


@pytest.mark.parametrize("high", [1.0, 0.3, 0.02])
def test_no_distribution_of_mean_0_gains(high: float) -> None:
    """The capital's expectation over all outcomes of 6 seeds is 1: `high` often, less the whole
    bound rarely.
    """
    rare = high / (1 + high)
    expected = 0.0
    for outcome in itertools.product((high, -1.0), repeat=6):
        lost = outcome.count(-1.0)
        expected += (
            rare**lost * (1 - rare) ** (6 - lost) * bounded_evidence(np.array(outcome) * 1.5, 1.5)
        )
    assert expected == pytest.approx(1.0, rel=1e-12)


def test_a_bet_by_hand_and_by_integration() -> None:
    """Half at full stake, half spread evenly: after one seed 1 + 3/4 d."""
    assert bounded_evidence([0.2], 1.0) == pytest.approx(1.15)
    assert bounded_evidence([0.3], 1.5) == pytest.approx(1.15)
    values = np.random.default_rng(2).uniform(-0.5, 0.9, size=40)
    spread_evenly = quad(lambda stake: float(np.prod(1 + stake * values)), 0, 1, epsabs=0)[0]
    expected = (np.prod(1 + values) + spread_evenly) / 2
    assert bounded_evidence(values, 1.0) == pytest.approx(expected, rel=1e-9)
    assert bounded_e_process(values, 1.0)[2] == pytest.approx(bounded_evidence(values[:3], 1.0))
    assert bounded_evidence(values[::-1], 1.0) == pytest.approx(
        bounded_evidence(values, 1.0)
    )  # seeds have no order


def test_bets_are_those_of_confseq() -> None:
    """Golden numbers of `diversified_betting_mart` of confseq 0.0.11, whose null is a mean of 1/2
    of errors in [0, 1].

    The 33 stakes and their weights were handed to it. It does not build on Python 3.11 and needs
    numpy < 2, so tests do not install it.
    """
    values = np.array([0.5, -0.25, 0.125, 0.75, -1 / 3, 0.0, 0.6, 0.9, -0.95, 0.4])
    golden = [1.375, 1.10416667, 1.20898438, 1.90800781, 1.38841146]
    golden += [1.38841146, 2.03859189, 3.53995196, 0.65153304, 0.79339216]
    assert bounded_e_process(values * 1.5, 1.5) == pytest.approx(golden, rel=1e-8)


def test_signs_count_wins_alone() -> None:
    """6 seeds that agree reach 40, 9 reach 260 (14 algorithms); a tie counts for neither."""
    assert [round(sign_evidence(np.ones(seeds)), 1) for seeds in (5, 6, 8, 9)] == [
        21.3,
        41.1,
        156.4,
        307.1,
    ]
    assert (
        sign_evidence([0.1, 3.0, -1e-3])
        == sign_evidence([1, 1, -1])
        == sign_evidence([1, 0, 1, -1, 0])
    )


def test_bounds_are_those_of_the_measures() -> None:
    """The extreme errors of N environments are one of 1 and the others 0."""
    for environments in (3, 4, 8):
        extreme = worst_gap([1.0, *[0.0] * (environments - 1)])
        assert choose().named("worst_gap").bounds(environments) == (0.0, extreme)
        others = [measure for measure in choose().of_runs if measure.name != "worst_gap"]
        assert {measure.bounds(environments) for measure in others} == {(0.0, 1.0)}


@pytest.mark.parametrize(
    ("difference", "bound"), [(0.3, 1.0), (0.05, 1.0), (0.05, 1.5), (1.5, 1.5)]
)
@pytest.mark.parametrize("needed", [40, 260])
def test_fewest_seeds_are_those_that_reach_it(
    difference: float, bound: float, needed: float
) -> None:
    seeds = int(fewest_seeds(difference, bound, needed))
    assert bounded_evidence(np.full(seeds, difference), bound) >= needed
    assert bounded_evidence(np.full(seeds - 1, difference), bound) < needed


def test_differences_too_small_to_be_found_without_assumptions() -> None:
    assert fewest_seeds(1e-5, 1.0, 40) == math.inf
    with pytest.raises(MeasureError, match="above 0"):
        fewest_seeds(0.0, 1.0, 40)

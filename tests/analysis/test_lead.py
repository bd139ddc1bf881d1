"""The lead of the best algorithm and the set of those that may be best: by hand, and against
simulated truth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import permutation_test, ttest_rel

from dgbench.analysis import decided, lead, separated, standing
from dgbench.errors import MeasureError

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
KINDS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
    "heavy-tailed": lambda rng, shape: rng.standard_t(2, size=shape),
}


def within(rate: float, expected: float, trials: int) -> bool:
    """Four standard errors of a rate that is expected: missed by chance in 1 of 16,000 cases."""
    return abs(rate - expected) <= 4 * np.sqrt(expected * (1 - expected) / trials)


def at_most(rate: float, bound: float, trials: int) -> bool:
    return bool(rate <= bound + 4 * np.sqrt(bound * (1 - bound) / trials))


def simulated(
    rng: np.random.Generator, kind: str, means: np.ndarray, sds: np.ndarray, seeds: int
) -> np.ndarray:
    """(A, S) values of those means, with effects that the algorithms of a seed share."""
    noise = KINDS[kind](rng, (len(means), seeds))
    return means[:, None] + sds[:, None] * noise + rng.normal(size=(1, seeds))


def two_tie(algorithms: int) -> np.ndarray:
    """The worst case: two of equal mean, the others far off."""
    return np.where(np.arange(algorithms) < 2, 0.0, 100.0)


def test_by_hand() -> None:
    """Differences 1, 2, 3: of the 8 sums +-1 +-2 +-3, two reach 6.

    Differences -1, 2, 3: 4 of them reach 4.
    """
    found = lead([[9, 9, 9], [0, 0, 0], [1, 2, 3]])
    assert (found.first, found.second, found.size, found.wins, found.seeds) == (1, 2, 2, 3, 3)
    assert (found.as_large, found.relabelings, found.p_value, found.least) == (2, 8, 0.25, 0.25)
    found = lead([[-1, 2, 3], [0, 0, 0]])
    assert (found.first, found.second, found.wins, found.p_value) == (1, 0, 2, 0.5)


def test_a_tie_leads_by_nothing_and_rounding_breaks_no_tie() -> None:
    assert lead([[0.1, 0.2], [0.2, 0.1]]).p_value == 1
    assert lead([[0.5], [0.7]]).p_value == 1
    # 0.2 - 0.1 three times: all sums of one size must tie
    three = lead([[0.1, 0.1, 0.1], [0.2, 0.2, 0.2]])
    assert three.p_value == 0.25


def test_equals_scipy() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 8))

    def lead_of(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(np.mean(a - b, axis=axis))

    peer = permutation_test(
        (first, second), lead_of, permutation_type="samples", n_resamples=np.inf
    )
    assert lead([first, second]).p_value == pytest.approx(peer.pvalue)


def test_many_seeds_are_relabeled_at_random() -> None:
    """25 seeds with a lead of 2 standard errors: the normal approximation of a two-sided test says
    0.05.
    """
    noise = np.random.default_rng(1).normal(size=25)
    difference = (noise - noise.mean()) / noise.std(ddof=1) + 2 / np.sqrt(25)
    found = lead([np.zeros(25), difference])
    assert found.relabelings == 10_000
    assert found.p_value == pytest.approx(0.05, abs=0.015)
    assert found == lead([np.zeros(25), difference])


def test_two_algorithms_and_three_seeds_are_one_case_in_four() -> None:
    """One of two equal algorithms wins in all 3 seeds in 2 of 8 cases, not in 1 of 8 as if it were
    named before.
    """
    rng, trials = np.random.default_rng(0), 4000
    wins = [lead(rng.normal(size=(2, 3))).wins == 3 for _ in range(trials)]
    assert within(float(np.mean(wins)), 0.25, trials)
    assert not within(float(np.mean(wins)), 0.125, trials)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("algorithms", "seeds"), [(2, 3), (2, 5), (3, 3), (14, 6)])
def test_p_values_are_exact_where_two_tie_and_others_are_far(
    kind: str, algorithms: int, seeds: int
) -> None:
    """P(p <= k 2^(1-S)) = k 2^(1-S) for every k."""
    rng, trials = np.random.default_rng(seeds), 1500
    means, least = two_tie(algorithms), 2.0 ** (1 - seeds)
    found = np.array(
        [
            lead(simulated(rng, kind, means, np.ones(algorithms), seeds)).p_value
            for _ in range(trials)
        ]
    )
    assert found.min() >= least
    for k in (1, 2, 3):
        assert within(float(np.mean(found <= k * least)), k * least, trials)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithms", [3, 14])
def test_more_ties_make_false_leads_rarer(kind: str, algorithms: int) -> None:
    rng, trials = np.random.default_rng(3), 800
    equal = np.zeros(algorithms), np.ones(algorithms)
    found = np.array([lead(simulated(rng, kind, *equal, 6)).p_value for _ in range(trials)])
    for level in (2 / 64, 0.25, 0.5):
        assert at_most(float(np.mean(found <= level)), level, trials)
    assert np.mean(found <= 2 / 64) < 0.75 * 2 / 64


@pytest.mark.parametrize("kind", ["normal", "heavy-tailed"])
def test_unequal_variances_are_harmless_where_values_are_symmetric(kind: str) -> None:
    """Equal means, deviations from 0.025 to 1.

    Of skewed values this does not hold, see docs/concepts/statistics.md.
    """
    rng, trials = np.random.default_rng(4), 800
    for algorithms in (2, 14):
        parts = np.zeros(algorithms), np.geomspace(0.025, 1, algorithms)
        found = np.array([lead(simulated(rng, kind, *parts, 6)).p_value for _ in range(trials)])
        assert at_most(float(np.mean(found <= 2 / 64)), 2 / 64, trials)


def test_two_algorithms_are_separated_where_the_two_sided_t_test_does_it() -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(200):
        values = rng.normal(size=(2, 4)) + np.array([[0.0], [1.0]])
        found = separated(values)
        assert (len(found.candidates) < 2) == (ttest_rel(*values).pvalue < 0.05)
        seen.add(found.candidates)
    assert {(0,), (0, 1)} <= seen


def test_what_is_far_is_separated_and_what_ties_is_not() -> None:
    """Differences of 5.00 with deviation 0.01 in 3 seeds: t = 866, above t(2, 0.975) = 4.30."""
    found = separated([[0, 1, 2], [0.1, 1, 1.9], [5, 6.01, 6.99]])
    assert found.candidates == (0, 1)
    assert separated([[0, 1], [0.5, 1.5]]).candidates == (0,)  # a constant difference
    assert separated([[0.1 + 0.2, 1], [0.3, 1]]).candidates == (0, 1)  # equal up to rounding


def test_one_seed_or_one_algorithm_separates_nothing() -> None:
    found = separated([[0.1], [0.9]])
    assert found.candidates == (0, 1)
    assert separated([[0.1, 0.2]]).candidates == (0,)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["normal", "heavy-tailed"])
@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("deviations", ["equal", "unequal"])
def test_the_best_is_in_the_set(kind: str, seeds: int, deviations: str) -> None:
    """All tie, so that any of them counts as the best: each must be in the set in 95% of the data
    sets.
    """
    rng, trials = np.random.default_rng(seeds), 600
    for algorithms in (2, 3, 14):
        sds = np.ones(algorithms) if deviations == "equal" else np.geomspace(0.025, 1, algorithms)
        absent = np.zeros(algorithms)
        for _ in range(trials):
            found = separated(simulated(rng, kind, np.zeros(algorithms), sds, seeds))
            absent += ~np.isin(np.arange(algorithms), found.candidates)
        assert at_most(float(absent.max() / trials), 0.05, trials)


@pytest.mark.parametrize("algorithms", [2, 3, 14])
def test_one_of_two_that_tie_is_rarely_crowned(algorithms: int) -> None:
    rng, trials = np.random.default_rng(7), 1000
    means = two_tie(algorithms)
    alone = [
        len(separated(simulated(rng, "normal", means, np.ones(algorithms), 5)).candidates) == 1
        for _ in range(trials)
    ]
    assert at_most(float(np.mean(alone)), 0.05, trials)


def test_what_is_refused() -> None:
    with pytest.raises(MeasureError, match="1 algorithm: "):
        lead([[0.1, 0.2]])
    with pytest.raises(MeasureError, match="lacks a value"):
        lead([[0.1, np.nan], [0.2, 0.1]])
    with pytest.raises(MeasureError, match="no value in any seed"):
        separated([[np.nan, np.nan], [0.2, 0.1]])
    for function in (lead, separated, standing):
        with pytest.raises(MeasureError, match="line per algorithm"):
            function([0.1, 0.2])


def test_whom_the_leader_beats_is_not_who_is_not_the_best() -> None:
    """Four algorithms of README's sweep: vrex and group_dro beat erm, irm leads and beats nobody.

    irm's paired t statistic against erm is 2.03, and 5.34 is needed of four algorithms with 3
    seeds.
    """
    irm, vrex = [72.2, 100.8, 45.3], [97.0, 96.4, 97.2]
    group_dro, erm = [98.1, 97.8, 103.2], [107.9, 105.0, 107.2]
    verdict = standing([erm, irm, vrex, group_dro])
    assert verdict.leader == 1 and not verdict.decided
    assert not any(rival.separated for rival in verdict.rivals)
    assert verdict.beaten_by == {0: 2}  # vrex, whose mean is lower than group_dro's
    against_erm = verdict.rivals[0].difference
    assert against_erm is not None
    test = ttest_rel(erm, irm)
    ends = test.confidence_interval(1 - 2 * 0.05 / 3)
    assert round(float(test.statistic), 2) == 2.03
    assert (against_erm.low, against_erm.high) == pytest.approx((ends.low, ends.high))


def test_an_interval_excludes_0_exactly_where_the_seeds_separate() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        algorithms, seeds = int(rng.integers(2, 6)), int(rng.integers(2, 6))
        values = rng.normal(size=(algorithms, seeds)) + 2 * rng.normal(size=(algorithms, 1))
        values[rng.random(values.shape) < 0.15] = np.nan
        if np.isnan(values).all(axis=1).any():
            continue
        for rival in standing(values).rivals:
            if rival.difference is None:
                assert rival.seeds < 2 and not rival.separated
            else:
                assert (rival.difference.low > 0) == rival.separated


def test_an_algorithm_with_fewer_seeds_does_not_lead_and_is_compared_over_those_it_has() -> None:
    values = np.array([[10.0, 11.0, 12.0], [30.0, 31.0, 32.1], [1.0, np.nan, np.nan]])
    verdict = standing(values)
    assert verdict.leader == 0
    assert [(rival.position, rival.seeds, rival.separated) for rival in verdict.rivals] == [
        (1, 3, True),
        (2, 1, False),
    ]
    assert not verdict.decided


def test_a_noisy_leader_does_not_make_its_equal_worse() -> None:
    """0 is noisy, 1 is as good, 2 better:
    where 0 leads, 1 was called worse than it in every case.
    """
    rng = np.random.default_rng(0)
    leads = worse = 0
    for _ in range(2000):
        noise = rng.normal(size=(3, 3)) * [[10.0], [0.1], [0.1]]
        verdict = standing(noise + np.array([[0.0], [0.0], [-2.0]]))
        if verdict.leader == 0:
            leads += 1
            worse += any(rival.position == 1 and rival.separated for rival in verdict.rivals)
    assert leads > 500 and worse / leads < 0.1


@pytest.mark.parametrize("seed", range(20))
def test_who_is_decided_to_lead_is_whom_the_standing_names(seed: int) -> None:
    """Some values are missing, and the lead is large in half of the cases."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(6, 4)) - 30 * np.eye(6)[:, [2]] * (seed % 2)
    values[5, : seed % 3] = np.nan
    verdict = standing(values)
    assert decided(values) == (verdict.leader if verdict.decided else None)

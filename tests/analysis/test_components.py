"""What moves a number most, against sums written out and against simulations of known truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dgbench.analysis.components import COMBINATIONS, SEED, Component, Decomposition, decompose
from dgbench.analysis.intervals import Statistics
from dgbench.errors import MeasureError

#: tuning x seed of network a, then of network b
TABLE = np.array([[[1.0, 2.0], [4.0, 7.0]], [[2.0, 3.0], [9.0, 8.0]]])


def of_table(values: np.ndarray) -> Decomposition:
    """Decompose a table of network x tuning x seed."""
    places = list(itertools.product(*map(range, values.shape)))
    networks, tunings, seeds = zip(*places, strict=True)
    factors = {"network": networks, "tuning": tunings}
    return decompose([values[place] for place in places], factors, seeds)


def component(result: Decomposition, name: str) -> Component:
    (one,) = [component for component in result.components if component.name == name]
    return one


def test_a_balanced_table_by_hand() -> None:
    result = of_table(TABLE)
    means = TABLE.mean(axis=2)
    total = TABLE.mean()
    network = 4 * ((TABLE.mean(axis=(1, 2)) - total) ** 2).sum()
    tuning = 4 * ((TABLE.mean(axis=(0, 2)) - total) ** 2).sum()
    joint = 2 * ((means - total) ** 2).sum() - network - tuning
    of_seeds = 4 * ((TABLE.mean(axis=(0, 1)) - total) ** 2).sum()
    rest = ((TABLE - means[..., None]) ** 2).sum() - of_seeds
    noise = rest / 3
    expected = {
        "network": math.sqrt((network - noise) / 8),
        "tuning": math.sqrt((tuning - noise) / 8),
        COMBINATIONS: math.sqrt(max(joint - noise, 0) / 8),
        SEED: math.sqrt(noise + max(of_seeds - noise, 0) / 4),
    }
    estimates = {one.name: one.moves.estimate for one in result.components}
    assert estimates == pytest.approx(expected)
    assert [one.levels for one in result.components] == [2, 2, 4, 2]
    assert (result.studies, result.cells, result.possible) == (8, 4, 4)
    assert component(result, "tuning").moves.low > 0
    assert result.most()["tuning"] > 0.5


def test_a_seed_that_moves_all_cells_alike_is_no_noise_of_factors() -> None:
    """A seed's own level widens its component, and no interval of a factor."""
    moved = TABLE + np.array([0.0, 50.0])
    plain, shifted = of_table(TABLE), of_table(moved)
    for name in ("network", "tuning", COMBINATIONS):
        before, after = component(plain, name).moves, component(shifted, name).moves
        assert (after.estimate, after.low, after.high) == pytest.approx(
            (before.estimate, before.low, before.high)
        )
    assert component(shifted, SEED).moves.estimate > 30


def test_a_factor_within_models_does_not_feel_their_noise() -> None:
    rng = np.random.default_rng(3)
    places = list(itertools.product(range(2), range(3), range(2)))  # network, seed, adaptation
    noise = {(network, seed): rng.normal(0, 20) for network in range(2) for seed in range(3)}
    values = [
        noise[network, seed] + 2 * adaptation + rng.normal(0, 0.1)
        for network, seed, adaptation in places
    ]
    networks, seeds, adaptations = zip(*places, strict=True)
    factors = {"network": networks, "adaptation": adaptations}
    adapted = component(decompose(values, factors, seeds, "adaptation"), "adaptation")
    assert adapted.within
    assert adapted.moves.estimate == pytest.approx(1, abs=0.1)
    assert adapted.moves.low > 0.8
    beside = component(decompose(values, factors, seeds), "adaptation")
    assert beside.moves.low == 0


def test_an_unequal_design_adjusts_one_factor_for_the_others() -> None:
    """Network b is tuned by the better method more often, and does nothing itself."""
    rng = np.random.default_rng(1)
    places = [("a", "lp", seed) for seed in range(6)] + [("a", "ft", 0), ("a", "ft", 1)]
    places += [("b", "ft", seed) for seed in range(6)] + [("b", "lp", 0), ("b", "lp", 1)]
    networks, tunings, seeds = zip(*places, strict=True)
    values = np.where(np.array(tunings) == "lp", 10.0, 0.0) + rng.normal(0, 0.5, len(places))
    result = decompose(values, {"network": networks, "tuning": tunings}, seeds)
    assert component(result, "network").moves.estimate < 0.5
    assert component(result, "network").moves.low == 0
    assert component(result, "tuning").moves.low > 3


def test_equal_means_by_luck_are_not_told_sharper_than_noise_allows() -> None:
    table = np.array([[0.0, 2.0, 4.0, 6.0], [3.0, 1.0, 6.0, 2.0 + 1e-9]])  # equal means, noise of 2
    places = list(itertools.product(range(2), range(4)))
    networks, seeds = zip(*places, strict=True)
    result = decompose([table[place] for place in places], {"network": networks}, seeds)
    moves = component(result, "network").moves
    assert moves.estimate == 0
    assert moves.low == 0
    assert moves.high > 1


def test_one_draw_of_the_seed_gives_the_same_intervals() -> None:
    first, second = of_table(TABLE), of_table(TABLE)
    assert [one.moves for one in first.components] == [one.moves for one in second.components]


@pytest.mark.parametrize(
    ("values", "factors", "seeds", "within", "text"),
    [
        ([1, 2, 3, 4], {"a": "xxyy"}, [0, 0, 0, 0], None, "same levels and seed"),
        ([1, 2], {"a": "xy"}, [0, 0], None, "two seeds"),
        ([1, 2, 3, 4], {"a": "xxxx"}, [0, 1, 2, 3], None, "a has one level"),
        ([1, math.nan, 3, 4], {"a": "xxyy"}, [0, 1, 0, 1], None, "a value is missing"),
        ([1, 2, 3, 5], {"a": "xxyy", "b": "uuvv"}, [0, 1, 0, 1], None, "a cannot be told from"),
        ([1, 2, 3], {"a": "xyx"}, [0, 0, 1], "a", "1 models lack a level of a"),
        ([1, 2], {}, [0, 1], None, "no factor"),
    ],
)
def test_what_cannot_be_decomposed_is_refused_in_one_line(
    values: list[float], factors: dict[str, str], seeds: list[int], within: str | None, text: str
) -> None:
    with pytest.raises(MeasureError, match=text) as fault:
        decompose(values, {name: list(levels) for name, levels in factors.items()}, seeds, within)
    assert "\n" not in str(fault.value)


@pytest.mark.thorough
def test_intervals_cover_the_truth() -> None:
    """Two networks, three tunings, two algorithms, two seeds, two adaptations: 95 % intervals."""
    rng = np.random.default_rng(1)
    networks, tunings, algorithms = [0.0, 4.0], [0.0, 3.0, 9.0], [0.0, 1.0]
    truth = {
        "network": float(np.std(networks)),
        "tuning": float(np.std(tunings)),
        "algorithm": float(np.std(algorithms)),
        COMBINATIONS: 0.0,
        SEED: math.sqrt(1 + 4 + 0.25 / 2),  # of the mean over two adaptations
        "adaptation": 1.0,
    }
    covered = dict.fromkeys(truth, 0)
    places = list(itertools.product(range(2), range(3), range(2), range(2)))
    studies = 150
    for number in range(studies):
        of_seeds = rng.normal(0, 1, 2)
        lines, values = [], []
        for network, tuning, algorithm, seed in places:
            level = networks[network] + tunings[tuning] + algorithms[algorithm]
            level += of_seeds[seed] + rng.normal(0, 2)
            for adaptation in range(2):
                lines.append((network, tuning, algorithm, seed, adaptation))
                values.append(level + 2 * adaptation + rng.normal(0, 0.5))
        columns = list(zip(*lines, strict=True))
        names = ["network", "tuning", "algorithm", SEED, "adaptation"]
        factors = dict(zip(names, columns, strict=True))
        seeds = factors.pop(SEED)
        statistics = Statistics(draws=1000, seed=number)
        result = decompose(values, factors, seeds, "adaptation", statistics)
        for one in result.components:
            if one.name in truth:
                covered[one.name] += one.moves.low <= truth[one.name] + 1e-9
                covered[one.name] -= one.moves.high < truth[one.name]
    shares = {name: count / studies for name, count in covered.items()}
    assert all(0.90 <= share <= 1.0 for share in shares.values()), shares

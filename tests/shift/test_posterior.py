"""Values by hand, closed forms of two Gaussians, and what must hold for every posterior."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from dgbench.shift.exact import colored_table, exact_shift
from dgbench.shift.joint import balanced_accuracy, shift_by_posterior
from tests.shift.fixed_sets import normal_quantiles

FOUR = np.array(
    [[0.7, 0.1, 0.15, 0.05], [0.05, 0.25, 0.3, 0.4], [0.003, 0.002, 0.6, 0.395], [0.25] * 4]
)


@pytest.mark.parametrize("delta", [0.05, 0.01])
def test_four_points(delta: float) -> None:
    found = shift_by_posterior(FOUR, delta)
    assert found == pytest.approx(
        {
            "div": 0.2475,  # of the third point alone: 0.99 / 4
            "cor": 0.085009920,
            "div_plus": 0.214733160,
            "cor_plus": 0.012403802,
            "tv": 0.4975,
            "h2": 0.298008344,
        },
        rel=1e-6,
    )


def test_with_a_small_delta_nothing_is_novel() -> None:
    found = shift_by_posterior(FOUR, 0.001)
    assert (found["div"], found["div_plus"]) == (0, 0)
    assert found["cor"] == pytest.approx(0.085116252, rel=1e-6)
    assert found["cor_plus"] == pytest.approx(0.012403969, rel=1e-6)
    everything = shift_by_posterior(FOUR, 0.6)
    assert everything["div_plus"] == pytest.approx(0.285604375, rel=1e-6)
    assert found["h2"] == pytest.approx(everything["div_plus"] + found["cor_plus"], rel=1e-12)


def of_two_normals(mean: float, n: int = 100_000) -> np.ndarray:
    """The true posterior of N(0, 1) and N(mean, 1), one class, at points that stand for half of
    each.
    """
    z = np.concatenate([normal_quantiles(0, n), normal_quantiles(mean, n)])
    densities = np.stack([norm.pdf(z), norm.pdf(z, mean)], axis=1)
    return np.asarray(densities / densities.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("mean", "delta", "div"),
    [
        (1, 0.05, 0.006967758),
        (2, 0.05, 0.311671213),
        (4, 0.05, 0.893756776),
        (2, 0.01, 0.096731656),
        (4, 0.01, 0.801856665),
    ],
)
def test_diversity_of_two_normals(mean: float, delta: float, div: float) -> None:
    assert shift_by_posterior(of_two_normals(mean), delta)["div"] == pytest.approx(div, abs=2e-5)


@pytest.mark.parametrize(
    ("mean", "tv", "h2"),
    [(0.5, 0.197412651, 0.030766766), (1, 0.382924923, 0.117503097), (3, 0.866385597, 0.675347533)],
)
def test_total_variation_and_hellinger_of_two_normals(mean: float, tv: float, h2: float) -> None:
    found = shift_by_posterior(of_two_normals(mean), 0.05)
    assert (found["tv"], found["h2"]) == pytest.approx((tv, h2), abs=2e-5)


@pytest.mark.parametrize("e_q", [0.9, 0.5, 0.1])
def test_the_true_posterior_of_colored_digits_gives_the_exact_values(e_q: float) -> None:
    p, q = colored_table(0.1, 0.25), colored_table(e_q, 0.25)
    joint = np.concatenate([p, q]).T / 2  # (4 features, 2K), each with its probability
    counts = np.rint(joint.sum(axis=1) * 8000).astype(int)
    points = np.repeat(joint / joint.sum(axis=1, keepdims=True), counts, axis=0)
    found, exact = shift_by_posterior(points, 0.05), exact_shift(p, q)
    for name in ("div", "cor", "div_plus", "cor_plus", "h2"):
        assert found[name] == pytest.approx(exact[name], abs=1e-12)
    assert found["tv"] == pytest.approx(exact["tv_z"], abs=1e-12)


def test_sides_without_mass_are_no_division_by_zero() -> None:
    certain = np.array([[1.0, 0, 0, 0], [0, 0, 0.5, 0.5]])
    for delta in (0.0, 0.05):
        found = shift_by_posterior(certain, delta)
        assert (found["cor"], found["cor_plus"], found["tv"], found["h2"]) == (0, 0, 1, 1)
    assert (found["div"], found["div_plus"]) == (1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_every_value_is_a_share_and_does_not_know_which_side_is_p(seed: int) -> None:
    rng = np.random.default_rng(seed)
    posterior = rng.dirichlet(np.full(6, 10.0 ** rng.uniform(-3, 1)), size=50)
    found = shift_by_posterior(posterior, 0.05)
    assert all(0 <= value <= 1 for value in found.values())
    assert found == pytest.approx(shift_by_posterior(np.roll(posterior, 3, axis=1), 0.05))
    assert (
        found["div"] + found["cor"] <= 1
        and found["h2"] <= found["div_plus"] + found["cor_plus"] + found["tv"]
    )
    assert found == pytest.approx(
        shift_by_posterior(posterior * 1.0005, 0.05), rel=1e-9
    )  # rounded probabilities


def test_accuracy_is_balanced_and_a_tie_is_told_as_p() -> None:
    posterior = np.array(
        [[0.3, 0.3, 0.2, 0.2], [0.1, 0.3, 0.3, 0.3], [0.25] * 4, [0.1, 0.1, 0.1, 0.7], [0.25] * 4]
    )
    assert balanced_accuracy(posterior, np.array([0, 0, 0, 1, 1])) == pytest.approx(
        (2 / 3 + 1 / 2) / 2
    )
    assert balanced_accuracy(posterior, np.array([0, 1, 0, 0, 0])) == pytest.approx((3 / 4 + 1) / 2)


@pytest.mark.parametrize(
    "wrong", [np.ones((2, 4)), np.array([[0.5, 0.5, 0]]), np.array([[1.5, -0.5]])]
)
def test_what_is_no_posterior(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match="rows sum to 1"):
        shift_by_posterior(wrong, 0.05)

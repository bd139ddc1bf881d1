"""Known distributions: a table by hand, colored digits, uniform distributions."""

from __future__ import annotations

import numpy as np
import pytest

from dgbench.shift.exact import colored_table, exact_shift


def test_a_table() -> None:
    """Two classes, four features; D_div is half of 0.4 + 0.5, the features of one side only.

    D_cor by hand: z = 0: sqrt(.25 * .25) * (|.8 - .2| + |.2 - .8|) = .3; z = 1: sqrt(.35 * .25) * 2
    |.1/.35 - .6| = .185934; half of their sum.
    """
    p = np.array([[0.20, 0.10, 0.20, 0], [0.05, 0.25, 0.20, 0]])
    q = np.array([[0.05, 0.15, 0, 0.30], [0.20, 0.10, 0, 0.20]])
    expected = {
        "div": 0.45,
        "cor": 0.242966968,
        "div_plus": 0.45,
        "cor_plus": 0.065215619,
        "h2_z": 0.454196011,
        "h2": 0.519411630,
        "tv_z": 0.5,
        "tv_yz": 0.7,
    }
    assert exact_shift(p, q) == pytest.approx(expected, rel=1e-6)
    assert exact_shift(q, p) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("e_p", "e_q", "color", "color_shape", "color_plus", "color_shape_plus", "tv"),
    [
        (0.1, 0.9, 0.8, 0.654654, 0.400000, 0.316515, 0.4),
        (0.1, 0.7, 0.6, 0.477770, 0.215810, 0.169224, 0.3),
        (0.1, 0.5, 0.4, 0.320422, 0.105573, 0.084479, 0.2),
        (0.1, 0.3, 0.2, 0.166117, 0.033070, 0.027554, 0.1),
        (0.1, 0.1, 0, 0, 0, 0, 0),
        (0.15, 0.9, 0.75, 0.607330, 0.341029, 0.267999, 0.375),
    ],
)
def test_colored_digits(
    e_p: float,
    e_q: float,
    color: float,
    color_shape: float,
    color_plus: float,
    color_shape_plus: float,
    tv: float,
) -> None:
    of_color = exact_shift(
        colored_table(e_p, 0.25, shape=False), colored_table(e_q, 0.25, shape=False)
    )
    of_both = exact_shift(colored_table(e_p, 0.25), colored_table(e_q, 0.25))
    assert (of_color["cor"], of_both["cor"]) == pytest.approx((color, color_shape), abs=1e-6)
    assert (of_color["cor_plus"], of_both["cor_plus"]) == pytest.approx(
        (color_plus, color_shape_plus), abs=1e-6
    )
    assert (of_color["h2"], of_both["h2"]) == pytest.approx((color_plus, color_plus), abs=1e-6)
    assert (of_color["tv_z"], of_both["tv_z"]) == pytest.approx((0, tv), abs=1e-12)
    assert (of_color["div"], of_both["div"]) == (0, 0)


@pytest.mark.parametrize(
    ("held_out", "color", "color_shape", "plus", "tv"),
    [
        (0.80, 0.183333, 0.144491, 0.016332, 0.092),
        (0.85, 0.25, 0.199505, 0.032638, 0.125),
        (0.90, 0.316667, 0.256547, 0.057882, 0.158),
        (0.10, 0.75, 0.607330, 0.267999, 0.375),
    ],
)
def test_three_environments_against_the_fourth(
    held_out: float, color: float, color_shape: float, plus: float, tv: float
) -> None:
    """Four environments, e = 0.80, 0.85, 0.90, 0.10; three are pooled: their mean e."""
    pooled = (2.65 - held_out) / 3
    of_both = exact_shift(colored_table(pooled, 0.25), colored_table(held_out, 0.25))
    assert of_both["cor"] == pytest.approx(color_shape, abs=1e-6)
    assert of_both["cor_plus"] == pytest.approx(plus, abs=1e-6)
    assert of_both["tv_z"] == pytest.approx(tv, abs=5e-4)
    of_color = exact_shift(
        colored_table(pooled, 0.25, shape=False), colored_table(held_out, 0.25, shape=False)
    )
    assert of_color["cor"] == pytest.approx(color, abs=1e-6)


def test_pooling_is_the_mean_of_the_tables() -> None:
    mean = (colored_table(0.1, 0.25) + colored_table(0.4, 0.25)) / 2
    assert mean == pytest.approx(colored_table(0.25, 0.25))


def test_colored_digits_without_noise_or_exceptions() -> None:
    certain = colored_table(0, 0)
    assert certain.tolist() == [[0.5, 0, 0, 0], [0, 0, 0, 0.5]]
    reversed_colors = colored_table(1, 0)
    assert exact_shift(certain, reversed_colors)["div"] == 1
    assert (
        exact_shift(colored_table(0, 0, shape=False), colored_table(1, 0, shape=False))["cor"] == 1
    )


def test_color_is_of_the_noisy_label() -> None:
    """p(label = 0, color = 0) = (1 - e) / 2 whatever the noise; p(label = 0, shape = 0, color = 1)
    = .75 e / 2.
    """
    assert colored_table(0.2, 0.25, shape=False)[0, 0] == pytest.approx(0.4)
    assert colored_table(0.2, 0.25)[0, 1] == pytest.approx(0.75 * 0.2 / 2)
    assert colored_table(0.2, 0.25)[1, 1] == pytest.approx(0.25 * 0.8 / 2)


@pytest.mark.parametrize("shift", [0, 30, 100])
def test_uniform_distributions_that_overlap(shift: int) -> None:
    p, q = np.zeros((1, 200)), np.zeros((1, 200))
    p[0, :100], q[0, shift : shift + 100] = 0.01, 0.01
    found = exact_shift(p, q)
    assert found["div"] == found["tv_z"] == pytest.approx(shift / 100)
    assert found["cor"] == 0


def test_a_novel_share_of_either_side() -> None:
    a, b = 0.2, 0.5
    p, q = np.array([[a, 1 - a, 0]]), np.array([[0, 1 - b, b]])
    assert exact_shift(p, q)["div"] == pytest.approx((a + b) / 2)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_and_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, q = (
        rng.dirichlet(np.full(12, 0.5), size=2).reshape(2, 3, 4) * (rng.random((2, 1, 4)) > 0.3)
        + 1e-300
    )
    p, q = p / p.sum(), q / q.sum()
    found = exact_shift(p, q)
    assert all(0 <= value <= 1 + 1e-12 for value in found.values())
    assert found == pytest.approx(exact_shift(q, p))
    assert found["div"] <= found["tv_z"] + 1e-12 and found["tv_z"] <= found["tv_yz"] + 1e-12
    common = (p.sum(axis=0) > 0) & (q.sum(axis=0) > 0)
    root = np.sqrt(p.sum(axis=0) * q.sum(axis=0))[common].sum()
    assert found["cor_plus"] == pytest.approx(root - np.sqrt(p * q)[:, common].sum(), abs=1e-12)


def test_what_is_no_table() -> None:
    table = colored_table(0.1, 0.25, shape=False)
    for wrong in (table * 2, table - [[1, -1], [0, 0]]):
        with pytest.raises(ValueError, match=r"probabilities.*sum.*1"):
            exact_shift(table, wrong)

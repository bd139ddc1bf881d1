"""Earth mover's distance, maximum mean discrepancy and NI against values, closed forms and slower
ways.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from dgbench.errors import DataError
from dgbench.shift.density import standardized
from dgbench.shift.distances import (
    WIDTHS,
    emd,
    kernel_matrix,
    median_distance,
    mmd2,
    mmd2_mean_over_widths,
    ni,
    ni_by_class,
    permutation_p,
)
from tests.shift.fixed_sets import normal_quantiles, two_sides, two_small_sets


def optimal_transport(a: np.ndarray, b: np.ndarray) -> float:
    """Minimal cost of a coupling of uniform weights, as a linear program."""
    n, m = len(a), len(b)
    rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    weights = np.repeat([1 / n, 1 / m], [n, m])
    return float(
        linprog(cdist(a, b).ravel(), A_eq=np.concatenate([rows, columns]), b_eq=weights).fun
    )


def test_emd_of_the_fixed_sets() -> None:
    p, q, _ = two_sides()
    assert emd(*standardized(p, q)) == pytest.approx(1.472871979, rel=1e-6)
    x, y = two_small_sets()
    assert emd(x[:9], y) == pytest.approx(0.976559272, rel=1e-6)
    assert emd(y, x[:9]) == pytest.approx(0.976559272, rel=1e-6)
    assert optimal_transport(x, y) == pytest.approx(
        0.878677663, rel=1e-6
    )  # of the program, not of ours


def test_emd_is_optimal_transport() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 15, 3))
    assert emd(a, b) == pytest.approx(optimal_transport(a, b), rel=1e-9)
    assert emd(a[:, :1], b[:, :1]) == pytest.approx(
        wasserstein_distance(a[:, 0], b[:, 0]), rel=1e-12
    )
    assert emd(a, a[::-1]) == 0
    assert emd(a, a + np.array([3, 0, 4])) == pytest.approx(5)


def test_emd_needs_equal_sizes() -> None:
    with pytest.raises(ValueError, match="equal size"):
        emd(np.zeros((3, 2)), np.zeros((4, 2)))


def test_mmd_of_the_fixed_sets() -> None:
    z_p, z_q = standardized(*two_sides()[:2])
    sigma = median_distance(z_p, z_q)
    assert sigma == pytest.approx(1.860819658, rel=1e-6)
    assert mmd2(z_p, z_q, sigma) == pytest.approx((0.336370266, 0.321176964), rel=1e-6)
    x, y = two_small_sets()
    sigma = median_distance(x, y)
    assert sigma == pytest.approx(1.757368752, rel=1e-6)
    assert mmd2(x, y, sigma) == pytest.approx((0.025459583, -0.053395268), rel=1e-6)
    assert mmd2_mean_over_widths(x, y, sigma) == pytest.approx(
        (0.049250317, -0.042228727), rel=1e-6
    )


def test_mmd_pair_by_pair() -> None:
    a, b = two_small_sets()

    def k(u: np.ndarray, v: np.ndarray) -> float:
        return float(np.exp(-((u - v) ** 2).sum() / (2 * 0.7**2)))

    between = np.mean([k(u, v) for u in a for v in b])
    biased = (
        np.mean([k(u, v) for u in a for v in a])
        + np.mean([k(u, v) for u in b for v in b])
        - 2 * between
    )
    alone = sum(
        np.mean([k(u, v) for i, u in enumerate(s) for j, v in enumerate(s) if i != j])
        for s in (a, b)
    )
    assert mmd2(a, b, 0.7) == pytest.approx((biased, alone - 2 * between), rel=1e-10)
    assert mmd2(a + 2**20, b + 2**20, 0.7) == pytest.approx(mmd2(a, b, 0.7), rel=1e-7)
    assert mmd2(b, a, 0.7) == pytest.approx(mmd2(a, b, 0.7), rel=1e-10)
    assert WIDTHS == (0.25, 0.5, 1, 2, 4)


@pytest.mark.parametrize(("mean", "value"), [(1, 0.177267635), (2, 0.561857515)])
def test_mmd_of_two_normals(mean: float, value: float) -> None:
    first, second = normal_quantiles(0, 1000)[:, None], normal_quantiles(mean, 1000)[:, None]
    assert mmd2(first, second, 1.0)[0] == pytest.approx(value, abs=1e-4)


def test_a_kernel_without_width_is_refused() -> None:
    with pytest.raises(DataError, match=r"width 0\.0 compares nothing.*features.*equal.*backbone"):
        mmd2(
            np.zeros((4, 2)), np.zeros((4, 2)), median_distance(np.zeros((4, 2)), np.zeros((4, 2)))
        )


def test_ni_of_the_fixed_sets() -> None:
    p, q, y = two_sides()
    z_p, z_q = standardized(p, q)
    assert ni(z_p, z_q) == pytest.approx(1.458522181, rel=1e-6)
    mean, values = ni_by_class(z_p, y, z_q, y)
    assert values == pytest.approx({0: 2.310273412, 1: 2.319729847}, rel=1e-6)
    assert mean == pytest.approx((2.310273412 + 2.319729847) / 2, rel=1e-6)
    first, second = two_small_sets()
    assert ni(first, second) == ni(second, first) == pytest.approx(0.542939667, rel=1e-6)
    mean, values = ni_by_class(first, np.arange(12) % 2, second, np.arange(9) % 2)
    assert values == pytest.approx({0: 0.800265260, 1: 0.610908539}, rel=1e-6)
    assert mean == pytest.approx(
        (11 * 0.800265260 + 10 * 0.610908539) / 21, rel=1e-6
    )  # 6 + 5 and 6 + 4 images


def test_ni_leaves_out_what_does_not_vary() -> None:
    first, second = two_small_sets()
    constant = [np.column_stack([side, np.full(len(side), 0.1)]) for side in (first, second)]
    assert ni(*constant) == pytest.approx(0.542939667, rel=1e-6)
    assert ni(np.ones((3, 2)), np.ones((3, 2))) == 0
    _, values = ni_by_class(first, np.arange(12) % 3, second, np.arange(9) % 2)
    assert sorted(values) == [0, 1]


def test_p_value_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes of one image a side: the sides of either class stay or are swapped, four cases of
    equal chance.

    The distance of the sides' means is 11 where both stay or both are swapped, 9 otherwise.
    """
    z, env, y = np.array([0.0, 10.0, 0.0, 1.0]), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])

    def apart(z: np.ndarray, env: np.ndarray) -> tuple[None, np.ndarray]:
        assert ((env[:, :2].sum(axis=1) == 1) & (env[:, 2:].sum(axis=1) == 1)).all()
        return None, np.abs(np.where(env == 0, z, -z).sum(axis=1))

    monkeypatch.setattr("dgbench.shift.distances.mmd2_of_kernel", apart)
    assert permutation_p(z, env, y, 1000, np.random.default_rng(0)) == pytest.approx(0.5, abs=0.06)
    swapped = np.array([1, 0, 0, 1])
    assert permutation_p(z, swapped, y, 1000, np.random.default_rng(0)) == 1


def test_p_values_of_equal_sides_are_uniform_and_of_others_the_smallest() -> None:
    rng = np.random.default_rng(0)
    env, y = np.tile([0, 1], 20), np.repeat([0, 1], 20)
    found = []
    for _ in range(200):
        z = rng.normal(size=(40, 2)) + 5 * y[:, None]
        kernel = kernel_matrix(z[:20], z[20:], 2.0)
        found.append(permutation_p(kernel, env, y, 99, rng))
    assert np.mean(found) == pytest.approx(0.505, abs=0.07)  # 3.4 standard errors
    assert 0.02 < np.mean(np.array(found) <= 0.1) < 0.18
    z = rng.normal(size=(40, 2)) + 3 * env[:, None]
    assert permutation_p(kernel_matrix(z[:20], z[20:], 2.0), env, y, 99, rng) == 0.01

"""Our kernel density estimate against scipy's,
and what is done about directions without variance.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from dgbench.errors import DataError
from dgbench.shift.density import GaussianKDE, SingularError, standardized
from tests.shift.fixed_sets import two_sides


def test_standardized_values_of_the_fixed_set() -> None:
    p, q, _ = two_sides()
    union = np.concatenate([p, q])
    assert union.mean(axis=0) == pytest.approx([0.04031355, 1.49196460], rel=1e-6)
    assert union.std(axis=0) == pytest.approx([1.67937282, 2.05307165], rel=1e-6)
    z_p, z_q = standardized(p, q)
    assert z_p.shape == z_q.shape == (40, 2)
    assert z_p[0] == pytest.approx([-0.68666259, -0.35278582], rel=1e-6)
    assert z_q[0] == pytest.approx([1.30660959, -0.50377254], rel=1e-6)


def test_density_values_of_the_fixed_set() -> None:
    z_p, z_q = standardized(*two_sides()[:2])
    points = np.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 1.0]])
    union = GaussianKDE(np.concatenate([z_p, z_q]))
    assert union.factor == pytest.approx(0.4817462420, rel=1e-9)
    assert union.covariance == pytest.approx(
        np.array([[0.23501716, -0.00604345], [-0.00604345, 0.23501716]]), rel=1e-6
    )
    for sample, densities in (
        (np.concatenate([z_p, z_q]), [0.06860548, 0.11137269, 0.07237330]),
        (z_p, [0.07681860, 0.22339211, 4.737670e-9]),
        (z_q, [0.04429400, 0.04244501, 0.13212844]),
    ):
        assert np.exp(GaussianKDE(sample).log_density(points)) == pytest.approx(densities, rel=1e-6)


@pytest.mark.parametrize(("n", "m", "points"), [(30, 1, 513), (300, 8, 1500), (40, 3, 1)])
def test_equals_scipy(n: int, m: int, points: int) -> None:
    rng = np.random.default_rng(n)
    sample = rng.normal(size=(n, m)) @ (np.eye(m) + rng.normal(size=(m, m)) / 8) + 3
    at = sample[rng.integers(n, size=points)] + rng.normal(size=(points, m))
    peer = gaussian_kde(sample.T)
    own = GaussianKDE(sample)
    assert own.covariance == pytest.approx(np.atleast_2d(peer.covariance), rel=1e-12)
    assert own.log_density(at) == pytest.approx(peer.logpdf(at.T), rel=1e-12, abs=1e-12)


def test_features_far_from_zero_lose_no_digits() -> None:
    rng = np.random.default_rng(0)
    sample, at = rng.normal(size=(2, 40, 3))
    near = GaussianKDE(sample).log_density(at)
    assert GaussianKDE(sample + 2**20).log_density(at + 2**20) == pytest.approx(near, rel=1e-8)


def test_a_density_that_underflows_has_a_logarithm() -> None:
    """About the nearest of two points 0 and 1: variance 1/2, factor 2^(-1/5), one kernel of two."""
    far = GaussianKDE(np.array([[0.0], [1.0]])).log_density(np.array([[1001.0]]))
    variance = 0.5 * 2 ** (-2 / 5)
    assert far == pytest.approx(
        [-(1000**2) / (2 * variance) - np.log(2 * np.sqrt(2 * np.pi * variance))], rel=1e-12
    )


def test_draws_have_the_moments_of_the_density() -> None:
    rng = np.random.default_rng(0)
    sample = np.concatenate(
        [rng.normal(size=(30, 2)), rng.normal(size=(10, 2)) @ [[0.1, 0.3], [0, 0.2]] + [8, 3]]
    )
    kde = GaussianKDE(sample)
    drawn = kde.draw(400_000, rng)
    assert drawn.mean(axis=0) == pytest.approx(sample.mean(axis=0), abs=0.03)
    assert np.cov(drawn.T) == pytest.approx(np.cov(sample.T, ddof=0) + kde.covariance, rel=0.01)


@pytest.mark.parametrize(
    "sample",
    [
        np.zeros((5, 2)),
        np.eye(3),
        np.arange(20.0).reshape(10, 2),
        np.zeros((1, 1)),
        np.zeros((0, 3)),
    ],
)
def test_points_without_a_density(sample: np.ndarray) -> None:
    with pytest.raises(SingularError):
        GaussianKDE(sample)


def test_constant_coordinates_and_collinear_directions_are_dropped() -> None:
    rng = np.random.default_rng(1)
    own = rng.normal(size=(50, 3))
    features = np.column_stack([own, np.full(50, 7.3), own[:, 0] - 2 * own[:, 1], own[:, 2]])
    z_p, z_q = standardized(features[:20], features[20:])
    assert (z_p.shape, z_q.shape) == ((20, 3), (30, 3))
    union = np.concatenate([z_p, z_q])
    GaussianKDE(union)
    # a rotation of the standardized coordinates: distances stay
    scaled = features[:, [0, 1, 2, 4, 5]]
    scaled = (scaled - scaled.mean(axis=0)) / scaled.std(axis=0)
    assert np.linalg.norm(union[3] - union[40]) == pytest.approx(
        np.linalg.norm(scaled[3] - scaled[40])
    )


def test_nothing_is_rotated_where_nothing_is_dropped() -> None:
    p, q, _ = two_sides()
    z_p, _ = standardized(p, q)
    assert z_p[:, 0] == pytest.approx((p[:, 0] - 0.04031355) / 1.67937282, abs=1e-7)


def test_equal_features_are_refused() -> None:
    with pytest.raises(DataError, match=r"same features.*backbone"):
        standardized(np.ones((4, 2)), np.ones((5, 2)))

"""The Fréchet distance: values by hand, torchmetrics, and its bias."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchmetrics.image.fid import _compute_fid

from dgbench.shift.density import standardized
from dgbench.shift.distances import extrapolated, frechet, frechet_of_moments
from tests.shift.fixed_sets import two_sides, two_small_sets, waves


def moments(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return features.mean(axis=0), np.cov(features, rowvar=False)


def test_moments_by_hand() -> None:
    """Diagonal: 9 of the means, 1 + 1 of the deviations.

    Else 9 - 2 sqrt(Tr C1 C2 + 2 sqrt(det C1 C2)).
    """
    first, second = np.diag([1.0, 4, 9]), np.diag([4.0, 1, 9])
    assert frechet_of_moments(np.zeros(3), first, np.array([1.0, 2, 2]), second) == pytest.approx(
        11, rel=1e-12
    )
    first, second = np.array([[2.0, 1], [1, 2]]), np.diag([3.0, 1])
    value = 9 - 2 * np.sqrt(8 + 2 * np.sqrt(9))
    assert value == pytest.approx(1.516685226, rel=1e-8)
    assert frechet_of_moments(np.zeros(2), first, np.array([1.0, 0]), second) == pytest.approx(
        value, rel=1e-12
    )


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        (*standardized(*two_sides()[:2]), 2.428914655),
        (*two_small_sets(), 0.184787829),
        (waves(4, 6), waves(5, 6, 1.0), 3.280571412),  # fewer points than dimensions; by 50 digits
    ],
)
def test_samples(a: np.ndarray, b: np.ndarray, value: float) -> None:
    assert frechet(a, b) == pytest.approx(value, rel=2e-9)
    assert frechet(b, a) == pytest.approx(value, rel=2e-9)
    assert frechet_of_moments(*moments(a), *moments(b)) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(("n", "m", "d"), [(50, 80, 8), (300, 40, 24)])
def test_equals_torchmetrics(n: int, m: int, d: int) -> None:
    rng = np.random.default_rng(d)
    a, b = rng.normal(size=(n, d)), rng.normal(size=(m, d)) @ rng.normal(size=(d, d)) + 1
    peer = float(_compute_fid(*(torch.from_numpy(each) for each in (*moments(a), *moments(b)))))
    assert frechet(a, b) == pytest.approx(peer, rel=1e-8)
    assert frechet_of_moments(*moments(a), *moments(b)) == pytest.approx(peer, rel=1e-8)


def test_equal_samples_have_no_distance() -> None:
    a, _ = two_small_sets()
    assert 0 <= frechet(a, a[::-1]) < 1e-12
    assert frechet(a, a + np.array([2, 0, 1])) == pytest.approx(5, rel=1e-12)
    single = (a + 1000).astype(np.float32)
    assert frechet(single, single[::-1]) < 1e-9  # computed in double precision


def test_extrapolation_is_the_intercept_over_one_by_n() -> None:
    sizes = [50, 60, 75, 100]
    assert extrapolated(sizes, [7 + 300 / n for n in sizes]) == pytest.approx(7, rel=1e-12)
    assert extrapolated([50, 100], [8, 5]) == pytest.approx(2, rel=1e-12)  # 2 + 300 / n


def test_bias_of_few_images_and_most_of_it_gone() -> None:
    """Two samples of N(0, I_64): 3.76 with 600 images each, 2.13 with 1000."""
    rng = np.random.default_rng(0)

    def of(n: int) -> float:
        return float(np.mean([frechet(*rng.normal(size=(2, n, 64))) for _ in range(4)]))

    assert (of(600), of(1000)) == pytest.approx((3.76, 2.13), rel=0.05)
    sizes = [500, 571, 667, 800, 1000]
    assert abs(extrapolated(sizes, [of(n) for n in sizes])) < 0.5

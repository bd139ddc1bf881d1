"""The bisection of both thresholds, on densities whose shift is a known function of the
thresholds.
"""

from __future__ import annotations

import numpy as np
import pytest

from dgbench.errors import DataError
from dgbench.shift.density import DensitiesAtPoints, calibrated_thresholds

M = 6400


def densities(
    p: np.ndarray, q: np.ndarray, proposal: np.ndarray, given_p: float, given_q: float
) -> DensitiesAtPoints:
    """One class, whose density is a multiple of its side's."""
    logs = [np.log(each) for each in (p, q, proposal, given_p * p, given_q * q)]
    one, none = np.ones(1), np.array([], dtype=int)
    return DensitiesAtPoints(
        logs[0], logs[1], logs[2], logs[3][None], logs[4][None], one, np.zeros(1, int), none
    )


def with_diversity(largest: float) -> DensitiesAtPoints:
    """p = 4 q and q up to ``largest``: (sqrt(4 q) - sqrt(q))^2 / q = 1, so the shift is half of
    eps_div / largest.
    """
    q = largest * (np.arange(M) + 0.5) / M
    return densities(4 * q, q, q, 1, 1)


def with_correlation(most: float) -> DensitiesAtPoints:
    """Equal densities from 0 to 1: correlation shift is most * (1 - eps_cor)."""
    p = (np.arange(M) + 0.5) / M
    return densities(p, p, p, 1, (1 - np.sqrt(2 * most)) ** 2)


def test_thresholds_are_bisected_until_both_null_means_are_small() -> None:
    """Means over two pairs: 1/4 of eps_div / 1e-6 is 0.0078 at 1/32, 0.03 (1 - eps_cor) is 0.0075
    at 3/4.
    """
    eps_div, eps_cor = calibrated_thresholds([with_diversity(1e-6), with_correlation(0.06)])
    assert (eps_div, eps_cor) == pytest.approx((1e-6 / 32, 0.75), rel=1e-12)


def test_correlation_that_is_too_low_lowers_its_threshold() -> None:
    eps_div, eps_cor = calibrated_thresholds([with_diversity(1e-6), with_correlation(0.016)])
    assert (eps_cor, eps_div) == (0.25, 1e-6 / 32)


def test_diversity_that_is_too_low_raises_its_threshold_and_may_never_reach() -> None:
    eps_div, eps_cor = calibrated_thresholds([with_diversity(2e-4), with_correlation(0.06)])
    assert eps_div / 1e-6 == pytest.approx(1 - 2**-20, rel=1e-9)
    assert eps_cor == 0.75  # inside from the second round on: kept
    # 1/4 of eps_div / 3e-5 is 0.0042 at 5e-7, 0.00625 at 7.5e-7
    eps_div, eps_cor = calibrated_thresholds([with_diversity(3e-5), with_correlation(0.06)])
    assert eps_div == 7.5e-7


def test_nothing_to_calibrate_with() -> None:
    with pytest.raises(DataError, match=r"more images.*fixed thresholds"):
        calibrated_thresholds([])

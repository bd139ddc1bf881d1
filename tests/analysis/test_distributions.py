"""Distribution functions and ranks are those of ``scipy.stats``, most of them to the last bit."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from dgbench.analysis.comparison import error_of_each
from dgbench.analysis.distributions import (
    chi_square_quantile,
    kendall_tau_b,
    noncentral_t_sf,
    normal_quantile,
    rankdata,
    t,
)
from dgbench.analysis.power import noncentrality

FREEDOM = np.array([1, 2, 3, 4.37, 9, 29, 300.5, 1e6])
SHARES = np.array([1e-9, 0.001, 0.025, 0.3, 0.5, 0.975, 0.99995])
VALUES = np.array([-np.inf, -40.0, -2.1, -0.0, 0.0, 1e-12, 0.7, 3.3, 50.0, np.inf, np.nan])


@pytest.mark.parametrize(
    ("name", "arguments"), [("cdf", VALUES), ("sf", VALUES), ("ppf", SHARES), ("isf", SHARES)]
)
def test_student_t(name: str, arguments: np.ndarray) -> None:
    ours = getattr(t, name)(arguments[:, None], FREEDOM)
    theirs = getattr(stats.t, name)(arguments[:, None], FREEDOM)
    assert np.array_equal(ours, theirs, equal_nan=True)
    assert np.isnan(getattr(t, name)(0.3, np.nan))


def test_normal_quantile() -> None:
    assert [normal_quantile(share) for share in SHARES] == stats.norm.ppf(SHARES).tolist()


@pytest.mark.parametrize("levels", [2, 5, 10_000])
def test_ranks_and_kendall(levels: int) -> None:
    rng = np.random.default_rng(levels)
    tables = rng.integers(0, levels, (40, 9)) / 7
    assert np.array_equal(rankdata(tables), stats.rankdata(tables, axis=1))
    for first, second in zip(tables[::2], tables[1::2], strict=True):
        ours, theirs = kendall_tau_b(first, second), stats.kendalltau(first, second).statistic
        assert ours == theirs or (np.isnan(ours) and np.isnan(theirs))


def test_ranks_of_one_and_of_equals() -> None:
    assert rankdata([3.0]).tolist() == [1.0]
    assert rankdata([2.0, 2.0, 1.0]).tolist() == [2.5, 2.5, 1.0]
    assert np.isnan(kendall_tau_b([1.0, 1.0], [1.0, 2.0]))


def test_chi_square_quantile() -> None:
    ours = chi_square_quantile(SHARES[:, None], FREEDOM)
    assert np.array_equal(ours, stats.chi2.ppf(SHARES[:, None], FREEDOM))


@pytest.mark.parametrize("freedom", [1, 2, 4, 29, 4095])
def test_noncentral_t(freedom: int) -> None:
    for value, shift in ((1.7, 0.0), (2.3, 2.5), (6.3, 14.0), (12.7, 20.0)):
        theirs = stats.nct.sf(value, freedom, shift)
        assert noncentral_t_sf(value, freedom, shift) == pytest.approx(theirs, rel=1e-10)


@pytest.mark.parametrize("seeds", [2, 3, 10, 100])
@pytest.mark.parametrize("power", [0.06, 0.8, 0.999])
def test_noncentrality_is_the_root(seeds: int, power: float) -> None:
    """Up to the tolerance of Brent's method, which is 2e-12."""
    quantile = float(stats.t.isf(error_of_each(5, 0.05), seeds - 1))
    root = brentq(lambda shift: stats.nct.sf(quantile, seeds - 1, shift) - power, 0, 200)
    assert noncentrality(seeds, 5, power) == pytest.approx(root, rel=1e-11)


@pytest.mark.thorough
def test_scipy_stats_is_not_loaded() -> None:
    code = (
        "import sys; from dgbench.analysis.intervals import widening; "
        "from dgbench.analysis.correlation import kendall; widening(3, 0.95); "
        "from dgbench.analysis.power import detectable; detectable(1.0, 3); "
        "kendall([1, 2, 3], [1, 3, 2]); assert 'scipy.stats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

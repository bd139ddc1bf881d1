"""The line on probit axes, effective robustness and outliers, against scipy and known truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import linregress, norm

from dgbench.analysis.effective_robustness import fit_line, on_axes, outliers
from dgbench.errors import MeasureError

INSIDE = np.array([0.6, 0.7, 0.75, 0.8, 0.9])
OUTSIDE = np.array([0.31, 0.44, 0.47, 0.58, 0.70])


@pytest.mark.parametrize(("axes", "transform"), [("probit", norm.ppf), ("logit", logit)])
def test_the_line_is_that_of_scipy(axes: str, transform: object) -> None:
    line = fit_line(INSIDE, OUTSIDE, axes)  # type: ignore[arg-type]
    expected = linregress(transform(INSIDE), transform(OUTSIDE))  # type: ignore[operator]
    assert line.slope == pytest.approx(expected.slope, rel=1e-9)
    assert line.intercept == pytest.approx(expected.intercept, rel=1e-9)
    assert line.determination == pytest.approx(expected.rvalue**2, rel=1e-9)


def test_a_model_on_the_line_has_no_effective_robustness() -> None:
    outside = norm.cdf(-0.5 + 0.8 * norm.ppf(INSIDE))
    line = fit_line(INSIDE, outside)
    assert outside - line.expected(INSIDE) == pytest.approx(np.zeros(5), abs=1e-12)
    assert not outliers(INSIDE, outside).any()
    assert not line.bends


def test_perfect_and_hopeless_accuracies_have_a_place() -> None:
    assert np.isfinite(on_axes([0.0, 1.0], "probit")).all()


def test_a_bend_is_told() -> None:
    x = np.linspace(-1, 1, 40)
    line = fit_line(norm.cdf(x), norm.cdf(x**2 - 1))
    assert line.bends and line.curved == pytest.approx(1)


def test_few_or_equal_models_have_no_line() -> None:
    with pytest.raises(MeasureError, match="4 algorithms"):
        fit_line(INSIDE[:3], OUTSIDE[:3])
    with pytest.raises(MeasureError, match="equally accurate"):
        fit_line(np.full(5, 0.7), OUTSIDE)


def test_outliers_are_marked_in_5_percent_of_studies_without_any() -> None:
    rng = np.random.default_rng(0)
    marked = 0
    for _ in range(400):
        x = rng.normal(0.8, 0.3, 20)
        y = -0.4 + 0.9 * x + 0.1 * rng.standard_normal(20)
        marked += bool(outliers(norm.cdf(x), norm.cdf(y)).any())
    assert 0.02 < marked / 400 < 0.08
    y[3] += 1
    assert outliers(norm.cdf(x), norm.cdf(y)).tolist() == [index == 3 for index in range(20)]

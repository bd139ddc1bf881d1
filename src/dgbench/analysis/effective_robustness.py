"""Accuracy out of distribution against accuracy in distribution: the line, and who leaves it.

On probit axes (the quantile of the normal distribution) or logit axes the accuracies of most models
lie near one line. Effective robustness is accuracy out of distribution less what the line expects
of a model's accuracy in distribution.

Sources: Taori et al. 2020, "Measuring robustness to natural distribution shifts in image
classification", section 3 (effective robustness, logit axes); Miller et al. 2021, "Accuracy on the
line", section 2 (probit axes).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dgbench.analysis.distributions import t
from dgbench.analysis.intervals import Floats
from dgbench.errors import MeasureError

Axes = Literal["probit", "logit", "linear"]
#: accuracies nearer to 0 or 1 have no place on probit and logit axes, and are moved here
NEAREST = 1e-4
_NORMAL = NormalDist()
_BEND = 0.05  # of R^2, from which a line is said not to describe the models
_FEWEST = 4  # models, from which a line leaves two degrees of freedom for a residual


def _probit(share: float) -> float:
    return _NORMAL.inv_cdf(share)


def _from_probit(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _from_logit(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def _same(value: float) -> float:
    return value


_FORWARD: dict[str, Callable[[float], float]] = {
    "probit": _probit,
    "logit": _logit,
    "linear": _same,
}
_BACK: dict[str, Callable[[float], float]] = {
    "probit": _from_probit,
    "logit": _from_logit,
    "linear": _same,
}


def on_axes(accuracies: ArrayLike, axes: Axes) -> Floats:
    """Transform (n,) accuracies in [0, 1] to places on the axes."""
    values = np.asarray(accuracies, dtype=float)
    if axes != "linear":
        values = np.clip(values, NEAREST, 1 - NEAREST)
    forward = _FORWARD[axes]
    return np.array([forward(value) for value in values.tolist()])


def accuracies_at(places: ArrayLike, axes: Axes) -> Floats:
    """Transform (n,) places on the axes back to accuracies."""
    back = _BACK[axes]
    return np.array([back(value) for value in np.asarray(places, dtype=float).tolist()])


@dataclass(frozen=True, eq=False)
class Line:
    """A line through models on the axes."""

    axes: Axes
    slope: float
    intercept: float
    determination: float  #: R^2 of the models that it was fitted to
    curved: float  #: R^2 of a parabola through the same models, NaN for fewer than 5
    models: int  #: that it was fitted to

    @property
    def bends(self) -> bool:
        """Whether a parabola explains notably more, so that the line describes no trend."""
        return self.curved - self.determination > _BEND

    def expected(self, inside: ArrayLike) -> Floats:
        """Compute the (n,) accuracies out of distribution that belong to those in distribution."""
        return accuracies_at(self.intercept + self.slope * on_axes(inside, self.axes), self.axes)


def fit_line(inside: ArrayLike, outside: ArrayLike, axes: Axes = "probit") -> Line:
    """Fit a line to models by least squares on the axes.

    Args:
        inside: (n,) accuracies in distribution, in [0, 1].
        outside: (n,) accuracies of the same models out of distribution.
        axes: on which the line is straight.

    Raises:
        MeasureError: fewer than 4 models, or all are equally accurate in distribution.
    """
    x = on_axes(inside, axes)
    y = on_axes(outside, axes)
    if len(x) < _FEWEST:
        raise MeasureError(f"a line needs {_FEWEST} algorithms or more, got {len(x)}")
    spread = ((x - x.mean()) ** 2).sum()
    if not spread > 0:
        raise MeasureError("all algorithms are equally accurate in distribution: there is no line")
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / spread)
    intercept = float(y.mean() - slope * x.mean())
    total = ((y - y.mean()) ** 2).sum()
    rest = ((y - intercept - slope * x) ** 2).sum()
    determination = float(1 - rest / total) if total > 0 else math.nan
    curved = _curved(x - x.mean(), y) if len(x) > _FEWEST else math.nan
    return Line(axes, slope, intercept, determination, curved, len(x))


def _curved(x: Floats, y: Floats) -> float:
    """Compute R^2 of the parabola of least squares."""
    terms = np.column_stack([np.ones_like(x), x, x * x])
    coefficients = np.linalg.lstsq(terms, y, rcond=None)[0]
    total = ((y - y.mean()) ** 2).sum()
    rest = ((y - terms @ coefficients) ** 2).sum()
    return float(1 - rest / total) if total > 0 else math.nan


def outliers(
    inside: ArrayLike, outside: ArrayLike, axes: Axes = "probit", alpha: float = 0.05
) -> NDArray[np.bool_]:
    """Mark the models that leave the line of the others.

    Each residual is divided by the deviation of the line without its model (externally studentized,
    n - 3 degrees of freedom), and tested two-sided at ``alpha / n`` (Bonferroni): if all models lie
    normally around one line, some is marked in ``alpha`` of data sets at most. Families of related
    models are no independent ones, which this test takes them for.

    Args:
        inside, outside, axes: as of :func:`fit_line`.
        alpha: probability of any false mark.
    """
    line = fit_line(inside, outside, axes)
    x = on_axes(inside, axes)
    y = on_axes(outside, axes)
    count = len(x)
    residuals = y - line.intercept - line.slope * x
    leverage = 1 / count + (x - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()
    room = np.maximum(1 - leverage, 1e-12)
    without = ((residuals**2).sum() - residuals**2 / room) / (count - 3)
    with np.errstate(divide="ignore", invalid="ignore"):
        studentized = np.abs(residuals) / np.sqrt(np.maximum(without, 0) * room)
    rounding = np.abs(residuals) < 1e-9
    studentized = np.where(rounding, 0.0, np.nan_to_num(studentized, posinf=np.inf))
    return np.asarray(studentized > t.isf(alpha / (2 * count), count - 3))

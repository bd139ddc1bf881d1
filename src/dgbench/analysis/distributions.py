"""Distribution functions and ranks as ``scipy.stats`` has them, from ``scipy.special``.

Importing ``scipy.stats`` takes 45 MB and half a second, which is a tenth of a large report.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
#: whether ``scipy.special.nctdtr`` is as precise as ``scipy.stats.nct``; tried with scipy 1.17
_HAS_PRECISE_NONCENTRAL_T = tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 17)


class StudentT:
    """Student's t distribution; arguments broadcast, NaN gives NaN.

    ``freedom``: degrees of freedom, above 0.
    """

    def cdf(self, value: ArrayLike, freedom: ArrayLike) -> Any:
        """Compute the probability of a lower value."""
        from scipy.special import stdtr

        return stdtr(freedom, value)

    def sf(self, value: ArrayLike, freedom: ArrayLike) -> Any:
        """Compute the probability of a higher value."""
        from scipy.special import stdtr

        return stdtr(freedom, np.negative(value))

    def ppf(self, share: ArrayLike, freedom: ArrayLike) -> Any:
        """Compute the value below which this share lies, in (0, 1)."""
        from scipy.special import stdtrit

        return stdtrit(freedom, share)

    def isf(self, share: ArrayLike, freedom: ArrayLike) -> Any:
        """Compute the value above which this share lies, in (0, 1)."""
        from scipy.special import stdtrit

        return np.negative(stdtrit(freedom, share))


t = StudentT()


def normal_quantile(share: float) -> float:
    """Compute the value below which this share of a standard normal distribution lies."""
    from scipy.special import ndtri

    return float(ndtri(share))


def chi_square_quantile(share: ArrayLike, freedom: ArrayLike) -> Any:
    """Compute the value below which this share of a chi-square distribution lies."""
    from scipy.special import gammaincinv

    return 2 * gammaincinv(np.asarray(freedom) / 2, share)


def noncentral_t_sf(value: float, freedom: float, shift: float) -> float:
    """Compute the probability of a higher value of Student's t whose mean is shifted.

    Args:
        value: from which on.
        freedom: degrees of freedom, above 0.
        shift: noncentrality, in standard errors.
    """
    if not _HAS_PRECISE_NONCENTRAL_T:
        from scipy.stats import nct

        return float(nct.sf(value, freedom, shift))
    from scipy.special import nctdtr

    return float(1.0 - nctdtr(freedom, shift, value))


def rankdata(values: ArrayLike) -> Floats:
    """Rank values along the last axis: 1 is the lowest, ties share their mean rank.

    Args:
        values: (..., n), none of them NaN.
    """
    table = np.asarray(values, dtype=float)
    n = table.shape[-1]
    order = np.argsort(table, axis=-1, kind="stable")
    ordered = np.take_along_axis(table, order, axis=-1)
    differs = ordered[..., 1:] != ordered[..., :-1]
    edge = np.ones((*table.shape[:-1], 1), dtype=bool)
    position = np.arange(n)
    is_first = np.concatenate([edge, differs], axis=-1)
    is_last = np.concatenate([differs, edge], axis=-1)
    first = np.maximum.accumulate(np.where(is_first, position, 0), axis=-1)
    reversed_last = np.where(is_last, position, n - 1)[..., ::-1]
    last = np.minimum.accumulate(reversed_last, axis=-1)[..., ::-1]
    ranks = np.empty(table.shape)
    np.put_along_axis(ranks, order, (first + last) / 2 + 1, axis=-1)
    return ranks


def kendall_tau_b(first: ArrayLike, second: ArrayLike) -> float:
    """Compute Kendall's tau-b, which corrects for ties, of (n,) and (n,) finite values.

    NaN where all values of one are equal.
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    of_a, of_b = (np.sign(values[:, None] - values[None, :]) for values in (a, b))
    # each pair stands there twice
    agreement = int((of_a * of_b).sum()) // 2
    untied_a = int(np.count_nonzero(of_a)) // 2
    untied_b = int(np.count_nonzero(of_b)) // 2
    if not untied_a or not untied_b:
        return float("nan")
    tau = agreement / np.sqrt(untied_a) / np.sqrt(untied_b)
    return float(min(1.0, max(-1.0, tau)))

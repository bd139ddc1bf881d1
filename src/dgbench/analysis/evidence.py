"""Evidence that may be looked at after every seed: how likely seeds are if one algorithm is lower.

Whoever looks after every seed and stops at the first small p-value is wrong far more often than
``alpha``. Evidence may be looked at so: each function below is an e-process against "not lower",
which ever exceeds 1 / a with probability a at most, over all seeds that will ever be trained. They
differ in what they assume and claim:

- :func:`evidence`: the mean difference is above 0, if differences are normal (or symmetric).
  Skewed differences mislead it: a rival that fails in one seed of fifty looks better in all the
  others.
- :func:`bounded_evidence`: the mean difference is above 0, whatever differences are like between
  their bounds.
- :func:`sign_evidence`: differences above 0 are more frequent than those below 0. It assumes
  nothing, but a lower error in most seeds is no lower mean.

All take seeds that are independent of each other, and none depends on their order.

Sources: Lai 1976, "On confidence sequences"; Wang & Ramdas 2025, "Anytime-valid t-tests and
confidence sequences for Gaussian means with unknown variance"; Grunwald, de Heide & Koolen 2024,
"Safe testing" (right Haar prior of the deviation); Waudby-Smith & Ramdas 2024, "Estimating means of
bounded random variables by betting"; Cover 1991, "Universal portfolios" (stakes spread evenly).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dgbench.analysis.distributions import t
from dgbench.analysis.intervals import Floats
from dgbench.errors import MeasureError

#: prior variance of a difference over its deviation: of 1 to 30, the one that finds differences of
#: 1 to 8 deviations at most one seed later than the best choice does
_PRIOR_VARIANCE = 10.0
#: nodes of the integral over stakes, exact for 63 seeds
_STAKE_NODES = 32
_ROUNDING = 1e-9
_MOST_SEEDS = 10_000


def evidence(differences: ArrayLike) -> float:
    """Compute how much more likely normal differences are if their mean is above 0.

    Likelihood ratio of the t statistics so far: mean / deviation half-normal with variance 10
    against 0, the deviation unknown (right Haar prior). If the true mean is 0 or below and
    differences are normal, it ever reaches 1 / a with probability a at most, however long one goes
    on and whenever one stops.

    Args:
        differences: (S,) one per seed, second algorithm less the first.
    """
    return float(e_process(differences)[-1])


def e_process(differences: ArrayLike) -> Floats:
    """Compute :func:`evidence` after 1, 2, ... seeds: (..., S) in the shape of the differences."""
    values = np.asarray(differences, dtype=float)
    seeds = np.arange(1, values.shape[-1] + 1)
    total = np.cumsum(values, axis=-1)
    squares = np.cumsum(values**2, axis=-1)
    # of the posterior, whose deviation is known up to the scale below
    mean = total / (seeds + 1 / _PRIOR_VARIANCE)
    residual = np.maximum(squares - total * mean, np.finfo(float).tiny)
    ratio = seeds / 2 * (np.log(np.maximum(squares, np.finfo(float).tiny)) - np.log(residual))
    scale = np.sqrt(residual / (seeds * (seeds + 1 / _PRIOR_VARIANCE)))
    likelihood = np.exp(ratio - np.log1p(seeds * _PRIOR_VARIANCE) / 2)
    return np.asarray(2 * likelihood * t.cdf(mean / scale, seeds))


def bounded_evidence(differences: ArrayLike, bound: float) -> float:
    """Compute evidence that the mean difference is above 0, for differences within bounds.

    The capital of a gambler who starts with 1 and bets on "above 0" at fair odds: a stake s turns
    the capital K into K (1 + s d / bound). Half of the capital bets all that it has, s = 1, the
    other half is spread evenly over stakes from 0 to 1, and both are left alone. If the mean is
    0 or below, no strategy gains on average, so the capital ever reaches 1 / a with probability a
    at most (Ville's inequality). If all differences are d, no valid test grows faster than 1 + d
    / bound a seed: one seed in bound / d that fails wholly, not seen yet, would make both equal.

    Args:
        differences: (S,) one per seed, second algorithm less the first.
        bound: that no difference can exceed in size: 1 of errors, see
            :meth:`~dgbench.analysis.measures.Measure.bounds` of other measures.

    Raises:
        MeasureError: a difference exceeds the bound.
    """
    return float(bounded_e_process(differences, bound)[-1])


def bounded_e_process(differences: ArrayLike, bound: float) -> Floats:
    """Compute :func:`bounded_evidence` after 1, 2, ... seeds, in the shape of the differences."""
    values = np.asarray(differences, dtype=float)
    largest = float(np.abs(values).max(initial=0.0))
    if largest > bound * (1 + _ROUNDING):
        raise MeasureError(
            f"a difference of {largest:g} exceeds the bound of {bound:g}; give the measure's own "
            "bound"
        )
    gains = np.clip(values / bound, -1.0, 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(_STAKE_NODES)
    with np.errstate(over="ignore"):  # beyond 1e308 it is infinite
        capital = np.cumprod(1 + gains, axis=-1) / 2
        for stake, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            capital = capital + weight / 2 * np.cumprod(1 + stake * gains, axis=-1)
    return np.asarray(capital)


def sign_evidence(differences: ArrayLike) -> float:
    """Compute evidence that differences above 0 are more frequent than those below 0.

    Differences of 0 do not count.

    It is :func:`bounded_evidence` of the signs: 6 seeds that all agree give 41.1, 9 give 307.

    Args:
        differences: (S,) one per seed, second algorithm less the first.
    """
    return bounded_evidence(np.sign(np.asarray(differences, dtype=float)), 1.0)


def fewest_seeds(difference: float, bound: float, needed: float) -> float:
    """Find the fewest seeds after which :func:`bounded_evidence` can reach what is needed.

    Over 10,000 it is infinite.

    It does so if every seed has the same difference; seeds that vary need more.

    Args:
        difference: mean difference, above 0.
        bound: as of :func:`bounded_evidence`.
        needed: evidence, above 1.

    Raises:
        MeasureError: the difference is not above 0.
    """
    if not difference > 0:
        raise MeasureError(
            f"no number of seeds finds a difference of {difference}; give one above 0"
        )
    # half of the capital alone reaches it
    most = math.ceil(math.log(2 * needed) / math.log1p(difference / bound))
    if most > _MOST_SEEDS:
        return math.inf
    capital = bounded_e_process(np.full(most + 1, difference), bound)
    return 1 + int((capital >= needed).argmax())

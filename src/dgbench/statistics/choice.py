"""Which algorithm a measure selects, and what that selection costs.

Source: Hwang et al. 2024, eqs. 3 and 5 and section 6.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dgbench.errors import MeasureError


def select(values: Mapping[str, float]) -> tuple[str, ...]:
    """The algorithms with the lowest value: usually one; all of them, in alphabetical order, when they tie.

    Whoever needs a single algorithm takes the first, so a tie is broken by the alphabet and can be seen.

    Raises:
        MeasureError: no algorithm, or a NaN.
    """
    _check(values)
    lowest = min(values.values())
    return tuple(sorted(name for name, value in values.items() if value == lowest))


def degradation(ideal_by_algorithm: Mapping[str, float], selected: str) -> float:
    """Ideal error of the selected algorithm less the lowest ideal error: 0 when the selected one is truly best (6.1).

    Args:
        ideal_by_algorithm: ideal error of each algorithm, fraction in [0, 1].
        selected: the algorithm that a measure selected.

    Raises:
        MeasureError: no algorithm, a NaN, or the selected one has no ideal error.
    """
    _check(ideal_by_algorithm)
    if selected not in ideal_by_algorithm:
        raise MeasureError(f"no ideal error for {selected}; train its fold 'full' (protocol.folds=[full])")
    return ideal_by_algorithm[selected] - min(ideal_by_algorithm.values())


def _check(values: Mapping[str, float]) -> None:
    if not values:
        raise MeasureError("no algorithm to choose from; train at least one")
    for name, value in values.items():
        if math.isnan(value):
            raise MeasureError(f"the value of {name} is NaN; leave it out")

"""One algorithm in one number: average, worst, gap, worst+gap and ideal; which one a measure
selects, and at what cost.

Source: Hwang et al. 2024, "Towards a Better Evaluation of Out-of-Domain Generalization", sections
    2, 3 and 6.1.
Errors are fractions wrong in [0, 1], one per environment: a mapping from environment name to error
or a sequence. N is the number of given environments. Every function raises
:class:`~dgbench.errors.MeasureError` when there is no error, when one is NaN, or when one lies
outside [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dgbench.errors import MeasureError

Errors = Mapping[str, float] | Iterable[float]
ROUNDING = 1e-9  #: relative; values that differ by less tie

#: measures that need the given environments alone, with the name a table prints
PRACTICAL_MEASURES = {
    "average": "average",
    "worst": "worst",
    "gap": "gap",
    "worst_gap": "worst+gap",
}
#: the same and the one measure that needs all environments
MEASURES = {**PRACTICAL_MEASURES, "ideal": "ideal"}


def average(held_out: Errors) -> float:
    """Average the leave-one-environment-out (LOO) errors, eq. 2.

    Args:
        held_out: N errors, each of the model that never saw that environment.
    """
    values = _checked(held_out)
    return math.fsum(values) / len(values)


def worst(held_out: Errors) -> float:
    """Find the largest LOO error, the first term of eq. 6."""
    return max(_checked(held_out))


def gap(held_out: Errors) -> float:
    """Compute the largest less the smallest LOO error, the second term of eq. 6 without its weight.

    Raises:
        MeasureError: there is one error only.
    """
    values = _checked(held_out)
    if len(values) < 2:
        raise MeasureError(
            "a gap needs 2 or more held-out errors, got 1; test in more environments"
        )
    return max(values) - min(values)


def worst_gap(held_out: Errors) -> float:
    """Compute the worst error plus 1/(N-2) times the gap, eq. 6. It may exceed 1.

    Raises:
        MeasureError: N < 3, where the weight 1/(N-2) does not exist.
    """
    values = _checked(held_out)
    if len(values) < 3:
        raise MeasureError(
            "worst+gap weighs the gap with 1/(N-2) and needs N >= 3 held-out errors, got "
            f"{len(values)}; give 3 or more environments, or use worst and gap apart"
        )
    return worst(values) + gap(values) / (len(values) - 2)


def highest(measure: str, environments: int) -> float:
    """Return the highest value that a measure can have: 1, and 1 + 1/(N-2) of worst+gap.

    Args:
        measure: a key of :data:`MEASURES`.
        environments: number N of held-out environments.
    """
    return worst_gap([1.0] + [0.0] * (environments - 1)) if measure == "worst_gap" else 1.0


def ideal(everywhere: Errors) -> float:
    """Find the largest error over all environments of the model trained on all given ones, eq. 4."""
    return max(_checked(everywhere))


@dataclass(frozen=True)
class Measures:
    """All measures of one (algorithm, seed).

    What cannot be computed is None and ``reasons`` says why.
    """

    average: float | None = None
    worst: float | None = None
    gap: float | None = None
    worst_gap: float | None = None
    ideal: float | None = None
    ideal_env: str | None = None  #: environment of the ideal error, the first one on ties
    reasons: Mapping[str, str] = field(default_factory=dict)  #: measure name -> why it is None

    @classmethod
    def of(
        cls,
        held_out: Mapping[str, float],
        everywhere: Mapping[str, float],
        *,
        no_held_out: str = "",
        no_worst_gap: str = "",
        no_everywhere: str = "",
    ) -> Measures:
        """Compute the measures whose errors are complete; the others are None, with the reason.

        Args:
            held_out: environment -> LOO error, for the N given environments.
            everywhere: environment -> error of the model trained on all given environments.
            no_held_out: why the LOO errors are incomplete; then no practical measure is computed,
                since an average or a worst case over a part of the environments is another
                quantity.
            no_worst_gap: why the errors are no LOO errors, so that eq. 6 does not apply to them.
            no_everywhere: why the ideal cannot be known.
        """
        values: dict[str, float | None] = {}
        reasons: dict[str, str] = {}
        for name, function in (
            ("average", average),
            ("worst", worst),
            ("gap", gap),
            ("worst_gap", worst_gap),
        ):
            absence = no_held_out or (no_worst_gap if name == "worst_gap" else "")
            values[name], reason = _attempt(function, held_out, absence)
            reasons |= {name: reason} if reason else {}
        values["ideal"], reason = _attempt(ideal, everywhere, no_everywhere)
        reasons |= {"ideal": reason} if reason else {}
        ideal_env = (
            None if values["ideal"] is None else max(everywhere, key=lambda env: everywhere[env])
        )
        return cls(**values, ideal_env=ideal_env, reasons=reasons)

    def value(self, name: str) -> float | None:
        """Look up the measure of that name (a key of :data:`MEASURES`); None where it could not be
        computed.
        """
        if name not in MEASURES:
            raise MeasureError(f"no measure {name!r}; choose one of {', '.join(MEASURES)}")
        value: float | None = getattr(self, name)
        return value


def _attempt(function, errors: Mapping[str, float], absence: str) -> tuple[float | None, str]:  # type: ignore[no-untyped-def]
    if absence:
        return None, absence
    try:
        return function(errors), ""
    except MeasureError as problem:
        return None, str(problem)


def _checked(errors: Errors) -> list[float]:
    pairs = list(errors.items()) if isinstance(errors, Mapping) else list(enumerate(errors))
    if not pairs:
        raise MeasureError("no errors given; pass at least one environment's error")
    for name, value in pairs:
        if math.isnan(value):
            raise MeasureError(
                f"the error of environment {name} is NaN; leave the run out or train it again"
            )
        if not 0 <= value <= 1:
            raise MeasureError(
                f"the error of environment {name} is {value}; errors are fractions in [0, 1], not "
                "percent"
            )
    return [float(value) for _, value in pairs]


def select(values: Mapping[str, float]) -> tuple[str, ...]:
    """Select the algorithms with the lowest value: usually one; all of them, in alphabetical order,
    when they tie.

    Values that differ by rounding alone tie. Whoever needs a single algorithm takes the first, so a
    tie is broken by the alphabet and can be seen.

    Raises:
        MeasureError: no algorithm, or a NaN.
    """
    if not values:
        raise MeasureError("no algorithm to choose from; train at least one")
    for name, value in values.items():
        if math.isnan(value):
            raise MeasureError(f"the value of {name} is NaN; leave it out")
    lowest = min(values.values())
    return tuple(
        sorted(
            name for name, value in values.items() if math.isclose(value, lowest, rel_tol=ROUNDING)
        )
    )


def degradation(ideal_by_algorithm: Mapping[str, float], selected: str) -> float:
    """Compute the selected algorithm's ideal error less the lowest ideal error: 0 when it is truly
    best (6.1).

    Args:
        ideal_by_algorithm: ideal error of each algorithm, fraction in [0, 1].
        selected: the algorithm that a measure selected.

    Raises:
        MeasureError: no algorithm, a NaN, or the selected one has no ideal error.
    """
    best = select(ideal_by_algorithm)
    if selected not in ideal_by_algorithm:
        raise MeasureError(
            f"no ideal error for {selected}; train its fold 'full' (protocol.folds=[full])"
        )
    return 0.0 if selected in best else ideal_by_algorithm[selected] - ideal_by_algorithm[best[0]]

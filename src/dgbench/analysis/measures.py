"""The contract of a measure, one number made of an algorithm's errors, and the measures of Hwang et
al.: average, worst, gap, worst+gap and ideal; which algorithm a measure selects, and at what cost.

Source: Hwang et al. 2024, "Towards a Better Evaluation of Out-of-Domain Generalization", sections
    2, 3 and 6.1.
Errors are fractions wrong in [0, 1], one per environment: a mapping from environment name to error
or a sequence. N is the number of given environments. The functions raise
:class:`~dgbench.errors.MeasureError` when there is no error, when one is NaN, or when one lies
outside [0, 1].
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dgbench.errors import MeasureError, one_line
from dgbench.validation import Checked, NonBlank, OneLine, Refusal

Errors = Mapping[str, float] | Iterable[float]
Floats = NDArray[np.float64]
ROUNDING = 1e-9  #: relative; values that differ by less tie
_MOST_SHOWN = 60  # characters of a value that a message repeats


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


def ideal(everywhere: Errors) -> float:
    """Find the largest error of all environments, of the model trained on all given ones, eq. 4."""
    return max(_checked(everywhere))


Needs = Literal["held_out", "leave_one_out", "everywhere"]
Identifier = Annotated[
    Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")],
    Refusal("is no name", "write lowercase letters, digits and _, a letter first"),
]
Text = Annotated[Annotated[NonBlank, Refusal("is no text", "say it in one line")], OneLine]


class MeasureFault(MeasureError):
    """A measure failed, or gave what is no value of it."""


class Measure(Checked):
    """One number made of an algorithm's errors; lower is better.

    A measure is a subclass with a method :meth:`value`, and a file ``conf/measure/NAME.yaml`` whose
    keys are the fields below and those that the subclass adds.

    Args:
        name: of columns; that of the file where the file does not say it.
        title: what tables print.
        formula: what it is, in words; explains the columns.
        needs: the errors that it is a function of: ``held_out``, in every tested environment, of
            models that never saw it; ``leave_one_out``, the same where each given environment was
            held out once and alone; ``everywhere``, in all environments, of the model that was
            trained on all given ones.
        of: ``runs``, one value per seed, of which tables show the mean; or ``means``, one value of
            the mean errors over seeds.
        prose: the title within a sentence, where it is another one.
        beside_ideal: the title of rank correlations, where it is another one.
    """

    key = "measure"
    #: whether it is the mean of the errors, which the noise of seeds does not raise
    is_mean: ClassVar[bool] = False

    name: Identifier
    title: Text
    formula: Text
    needs: Needs = "held_out"
    of: Literal["runs", "means"] = "runs"
    prose: str = ""
    beside_ideal: str = ""

    @property
    def in_prose(self) -> str:
        """The title within a sentence."""
        return self.prose or self.title

    @property
    def in_correlations(self) -> str:
        """The title of its rank correlations with the ideal."""
        return self.beside_ideal or self.title

    def value(self, errors: Floats) -> float:
        """Compute the measure, a pure function.

        Args:
            errors: (N,) fractions in [0, 1], read-only, in the order of the given environments.

        Raises:
            MeasureError: these errors do not suffice; tables then say why.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method value(errors)")

    def bounds(self, environments: int) -> tuple[float, float]:
        """Return the lowest and the highest value of so many errors in [0, 1]."""
        return 0.0, 1.0

    def over_box(self, low: Floats, high: Floats) -> tuple[float, float] | None:
        """Return the lowest and the highest value over all errors between two arrays (N,).

        Without it, which is None, the measure of mean errors gets no interval.
        """
        return None

    def __call__(self, errors: Errors) -> float:
        """Compute the measure of checked errors, and check what comes out.

        Raises:
            MeasureError: the errors do not suffice.
            MeasureFault: the measure failed; says where.
        """
        values = np.array(_checked(errors))
        values.flags.writeable = False
        try:
            with np.errstate(divide="ignore", invalid="ignore"):  # what comes out is judged
                result = self.value(values)
        except MeasureError:
            raise
        except Exception as error:  # whatever a user's function raises
            fault = f"{_place(self, error)}{one_line(error, None)}"
            raise MeasureFault(f"measure {self.name} failed ({fault}); correct it") from error
        return self._accepted(result, len(values))

    def _accepted(self, result: Any, environments: int) -> float:
        """Check that a result is one number within the bounds.

        Raises:
            MeasureFault: it is something else.
        """
        scalar = isinstance(result, (int, float, np.number)) and not isinstance(result, bool)
        if not scalar or isinstance(result, np.complexfloating):
            raise MeasureFault(
                f"measure {self.name} gave {_shown(result)}, not one number; return a float"
            )
        number = float(result)
        if math.isnan(number):
            raise MeasureFault(
                f"measure {self.name} gave NaN of {environments} errors; raise MeasureError where "
                "it has no value"
            )
        low, high = self.bounds(environments)
        if not low - ROUNDING <= number <= high + ROUNDING:
            raise MeasureFault(
                f"measure {self.name} gave {number:g} of {environments} errors, outside its bounds "
                f"{low:g} to {high:g}; correct value(errors), or say what "
                "bounds(environments) are"
            )
        return number


def _place(measure: Measure, error: BaseException) -> str:
    """Return ``own.py, line 7: ``, the line of a measure's module that led to an error, if any."""
    file = getattr(sys.modules.get(type(measure).__module__), "__file__", None)
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{Path(lines[-1].filename).name}, line {lines[-1].lineno}: " if lines else ""


def _shown(value: object) -> str:
    """Format a value in one line of moderate length."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


class Average(Measure):
    """See :func:`average`."""

    is_mean = True

    def value(self, errors: Floats) -> float:
        return average(errors)

    def over_box(self, low: Floats, high: Floats) -> tuple[float, float]:
        return average(low), average(high)


class WeightedAverage(Measure):
    """The mean of the errors, each environment or group weighed, e.g. by its number of images.

    The "average" that papers print of groups is one with the groups' shares of the training images
    (the adjusted average of Sagawa et al. 2020).

    Args:
        weights: environment -> its weight, above 0, in the order of the given environments.
    """

    is_mean = True
    weights: Annotated[
        Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)],
        Refusal("is no table of weights", "write e.g. weights: {photo: 1670, sketch: 3929}"),
    ]

    def value(self, errors: Floats) -> float:
        if len(errors) != len(self.weights):
            raise MeasureError(f"{len(errors)} errors, and weights of {len(self.weights)}")
        return float(np.average(errors, weights=list(self.weights.values())))

    def over_box(self, low: Floats, high: Floats) -> tuple[float, float]:
        return self.value(low), self.value(high)

    def __call__(self, errors: Errors) -> float:
        """Compute the measure; the names of the errors, where they have some, are those of weights.

        Raises:
            MeasureError: they are others, or in another order.
        """
        if isinstance(errors, Mapping) and list(errors) != list(self.weights):
            raise MeasureError(
                f"the environments are {', '.join(map(str, errors))}, and {self.name} has weights "
                f"of {', '.join(self.weights)}; give weights of these, in their order"
            )
        return super().__call__(errors)


class Worst(Measure):
    """See :func:`worst`; of errors everywhere it is the ideal, eq. 4."""

    def value(self, errors: Floats) -> float:
        return worst(errors)

    def over_box(self, low: Floats, high: Floats) -> tuple[float, float]:
        return worst(low), worst(high)


class Gap(Measure):
    """See :func:`gap`."""

    def value(self, errors: Floats) -> float:
        return gap(errors)

    def over_box(self, low: Floats, high: Floats) -> tuple[float, float]:
        smallest = max(0.0, float(low.max() - high.min()))
        return smallest, float(high.max() - low.min())


class WorstGap(Measure):
    """See :func:`worst_gap`."""

    def value(self, errors: Floats) -> float:
        return worst_gap(errors)

    def bounds(self, environments: int) -> tuple[float, float]:
        return 0.0, 1.0 + 1.0 / max(environments - 2, 1)

    def over_box(self, low: Floats, high: Floats) -> tuple[float, float]:
        weight = 1 / max(len(low) - 2, 1)
        smallest = max(0.0, float(low.max() - high.min()))
        largest = float(high.max() - low.min())
        return float(low.max()) + weight * smallest, float(high.max()) + weight * largest


@dataclass(frozen=True)
class Measured:
    """The measures of one (algorithm, seed)."""

    values: Mapping[str, float]  #: measure -> value; lacks what cannot be computed
    reasons: Mapping[str, str] = field(default_factory=dict)  #: measure -> why it is absent

    @classmethod
    def of(
        cls,
        measures: Sequence[Measure],
        held_out: Errors,
        everywhere: Errors,
        absences: Mapping[str, str] | None = None,
    ) -> Measured:
        """Compute the measures whose errors are complete.

        Args:
            measures: all that are wanted.
            held_out: the error in each of the N given environments of the model that never saw it.
            everywhere: the error in each environment of the model of all given ones.
            absences: ``needs`` of measures -> why these errors are incomplete, or are others. An
                average or a worst case over a part of the environments is another quantity.
        """
        values: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for measure in measures:
            absence = (absences or {}).get(measure.needs, "")
            if absence:
                reasons[measure.name] = absence
                continue
            try:
                values[measure.name] = measure(errors_for(measure, held_out, everywhere))
            except MeasureError as problem:
                reasons[measure.name] = str(problem)
        return cls(values, reasons)


def errors_for(measure: Measure, held_out: Errors, everywhere: Errors) -> Errors:
    """Choose the errors that a measure is a function of."""
    return everywhere if measure.needs == "everywhere" else held_out


def _checked(errors: Errors) -> list[float]:
    if isinstance(errors, Mapping):
        names, values = list(errors), list(map(float, errors.values()))
    else:
        values = errors.tolist() if isinstance(errors, np.ndarray) else list(map(float, errors))
        names = list(map(str, range(len(values))))
    if not values:
        raise MeasureError("no errors given; pass at least one environment's error")
    if all(0 <= value <= 1 for value in values):
        return values
    for name, value in zip(names, values, strict=True):
        if math.isnan(value):
            raise MeasureError(
                f"the error of environment {name} is NaN; leave the run out or train it again"
            )
        if not 0 <= value <= 1:
            raise MeasureError(
                f"the error of environment {name} is {value}; errors are fractions in [0, 1], not "
                "percent"
            )
    return values


def select(values: Mapping[str, float]) -> tuple[str, ...]:
    """Select the algorithms with the lowest value: usually one.

    If several tie it is all of them, in alphabetical order.

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

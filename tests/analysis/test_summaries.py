"""Measures against arithmetic done by hand."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from dgbench import analysis as measures
from dgbench.errors import MeasureError
from dgbench.plan.measures import choose

HELD_OUT = {"0.90": 0.10, "0.85": 0.20, "0.80": 0.30, "0.10": 0.80}


def test_hand_worked() -> None:
    """N = 4, errors .1 .2 .3 .8.

    average = 1.4 / 4 = 0.35; worst = 0.8; gap = 0.8 - 0.1 = 0.7; worst+gap = 0.8 + 0.7 / (4 - 2) =
    1.15.
    """
    assert measures.average(HELD_OUT) == pytest.approx(0.35, abs=1e-15)
    assert measures.worst(HELD_OUT) == 0.8
    assert measures.gap(HELD_OUT) == pytest.approx(0.7, abs=1e-15)
    assert measures.worst_gap(HELD_OUT) == pytest.approx(1.15, abs=1e-15)
    assert measures.ideal({"0.00": 0.85, **HELD_OUT}) == 0.85


def test_three_environments_weigh_the_gap_fully() -> None:
    """N = 3: weight 1 / (3 - 2) = 1, so 0.5 + (0.5 - 0.2) = 0.8; sequences and arrays serve as well
    as mappings.
    """
    assert measures.worst_gap([0.3, 0.2, 0.5]) == pytest.approx(0.8)
    assert measures.worst_gap(np.array([0.3, 0.2, 0.5])) == pytest.approx(0.8)


def test_equal_errors_have_no_gap() -> None:
    assert measures.gap([0.25] * 5) == 0
    assert measures.worst_gap([0.25] * 5) == 0.25


@pytest.mark.parametrize("errors", [[0.1], [0.1, 0.2]])
def test_worst_gap_needs_three(errors: list[float]) -> None:
    with pytest.raises(MeasureError, match=r"1/\(N-2\).*N >= 3.*give 3 or more"):
        measures.worst_gap(errors)


@pytest.mark.parametrize("name", ["average", "worst", "gap", "worst_gap", "ideal"])
@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ({"photo": math.nan, "art": 0.1, "sketch": 0.2}, "photo is NaN"),
        ([20.0, 30.0, 40.0], "not percent"),
        ([-0.1, 0.2, 0.3], "fractions"),
        ([], "no errors"),
    ],
)
def test_bad_input(name: str, errors: object, message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        getattr(measures, name)(errors)


def test_all_measures_of_one_study() -> None:
    computed = choose().computed
    found = measures.Measured.of(computed, HELD_OUT, {"0.00": 0.85, "0.50": 0.4})
    assert (found.values["worst"], found.values["ideal"]) == (0.8, 0.85)
    assert found.values["worst_gap"] == pytest.approx(1.15)
    assert not found.reasons


def test_what_is_absent_says_why() -> None:
    """A part of the folds gives no average; two environments give everything but worst+gap."""
    computed = choose().computed
    absences = {"held_out": "fold 2: failed", "leave_one_out": "fold 2: failed"}
    part = measures.Measured.of(computed, {"a": 0.1}, {"a": 0.2}, absences)
    assert part.values == {"ideal": 0.2}
    assert part.reasons["average"] == "fold 2: failed"
    absences = {"everywhere": "fold full: no rows"}
    two = measures.Measured.of(computed, {"a": 0.1, "b": 0.3}, {}, absences)
    assert two.values["average"] == pytest.approx(0.2)
    assert "worst_gap" not in two.values
    assert "N >= 3" in two.reasons["worst_gap"]
    assert two.reasons["ideal"] == "fold full: no rows"


def test_no_torch() -> None:
    code = (
        "import sys, dgbench.analysis, dgbench.analysis.selection; assert 'torch' not in "
        "sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

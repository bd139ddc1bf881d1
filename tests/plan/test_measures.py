"""Measures by name and as objects: what is there, what is refused, and in which line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgbench.analysis import Measure, Measured
from dgbench.analysis.expected import expected
from dgbench.errors import MeasureError
from dgbench.plan import measures
from dgbench.plan.measures import choose, read_measure
from tests.complaints import refused

HELD_OUT = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.8}


class TopTwo(Measure):
    """The mean of the two largest errors."""

    name: str = "top_two"
    title: str = "top two"
    formula: str = "mean of the two largest errors"

    def value(self, errors: Any) -> float:
        if len(errors) < 2:
            raise MeasureError("top two needs 2 errors")
        return float(np.sort(errors)[-2:].mean())


class Given(TopTwo):
    """What a test says."""

    says: Callable[[Any], Any]

    def value(self, errors: Any) -> Any:
        return self.says(errors)


def test_those_of_dgbench_are_files() -> None:
    choice = choose()
    shown = ["average", "worst", "gap", "worst_gap", "worst_gap_of_means", "ideal"]
    assert [measure.name for measure in choice.shown] == shown
    assert [measure.name for measure in choice.compared] == ["worst_gap", "average"]
    assert [measure.name for measure in choice.practical] == shown[:4]
    assert choice.of_a_run(choice.shown[4]).name == "worst_gap"
    assert not choice.own


def test_names_and_objects_stand_side_by_side() -> None:
    top = TopTwo()
    choice = choose([top, "average"], [top])
    assert [measure.name for measure in choice.of_runs] == ["top_two", "average"]
    assert choice.own == [top]
    found = Measured.of(choice.computed, HELD_OUT, {})
    assert found.values["top_two"] == pytest.approx(0.55)
    assert found.values["worst_gap"] == pytest.approx(1.15)  # tables of papers need it


def test_of_mean_errors_is_one_more_word() -> None:
    """Errors 0.1 0.5 0.5 and 0.5 0.1 0.5 of two seeds: 0.5 each, and 0.4 of the means."""
    of_means = TopTwo(name="top_two_of_means", title="of means", of="means")
    choice = choose([of_means])
    behind = choice.of_a_run(of_means)
    assert (behind.of, behind.name) == ("runs", "top_two_of_means_of_a_run")
    assert choose([TopTwo(), of_means]).of_a_run(of_means) == TopTwo()
    estimate = expected([[0.1, 0.5, 0.5], [0.5, 0.1, 0.5]], behind)
    assert (estimate.of_a_run, estimate.value) == pytest.approx((0.5, 0.4))
    assert estimate.interval is None  # its range over a box is not said


def test_what_a_measure_cannot_be_computed_of_has_its_reason() -> None:
    found = Measured.of([TopTwo()], {"a": 0.1}, {})
    assert found.reasons == {"top_two": "top two needs 2 errors"}


@pytest.mark.parametrize(
    ("says", "line"),
    [
        (lambda errors: 1 / 0, r"measure top_two failed \(test_measures.py, line \d+: ZeroDiv"),
        (lambda errors: float("nan"), "measure top_two gave NaN of 4 errors; raise MeasureError"),
        (lambda errors: errors, r"measure top_two gave array\(.*, not one number"),
        (lambda errors: None, "gave None, not one number; return a float"),
        (lambda errors: True, "gave True, not one number"),
        (lambda errors: "0.5", "gave '0.5', not one number"),
        (lambda errors: 100 * errors.max(), r"gave 80 of 4 errors, outside its bounds 0 to 1"),
        (lambda errors: errors.sort(), "failed .*read-only"),
        (lambda errors, calls=[]: calls.append(0) or len(calls) / 99, "and then .* of the same"),
    ],
)
def test_a_fault_is_one_line_before_anything_is_read(says: Callable[[Any], Any], line: str) -> None:
    with refused(line):
        choose([Given(says=says)])


def test_a_fault_of_some_errors_alone_is_a_reason() -> None:
    measure = Given(says=lambda errors: 1 / int(errors[0] != 0.7))
    found = Measured.of([measure], {"a": 0.7, "b": 0.2}, {})
    assert "top_two failed (test_measures.py, line" in found.reasons["top_two"]


@pytest.mark.parametrize(
    ("shown", "compared", "line"),
    [
        (
            ["foo"],
            None,
            r"measures holds foo, which is no measure; choose from average, .*--config",
        ),
        (["avrage"], None, "did you mean average"),
        (["average", "average"], None, "measures holds average twice"),
        ([], None, "measures is empty"),
        (None, [], "compared is empty"),
        (None, ["ideal"], "compared holds ideal, .*leave it out"),
        (None, ["worst_gap_of_means"], "no value for a seed"),
        ([TopTwo(name="average")], None, "average and average have the name 'average'"),
        ([TopTwo(title="gap")], None, "gap and top_two have the title 'gap'"),
        ([TopTwo(title="seed")], None, "title 'seed', which tables use for something else"),
        ([TopTwo(name="dataset")], None, "name 'dataset', which tables use"),
        ([TopTwo(), TopTwo(name="other")], None, "have the title 'top two'"),
    ],
)
def test_what_cannot_stand_in_a_table_is_one_line(shown: Any, compared: Any, line: str) -> None:
    with refused(line):
        choose(shown, compared)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("title: x\n", "names no class; write _target_: MODULE.CLASS"),
        ("- 1\n", "names no class"),
        ("_target_: [\n", "cannot be read"),
        ("_target_: no_such_module.X\n", r"measure._target_=no_such_module.X cannot be imported"),
        ("_target_: pathlib.Path\n", "is no dgbench Measure"),
        ("_target_: dgbench.analysis.Measure\ntitle: x\nformula: y\n", "has no method value"),
        ("_target_: dgbench.analysis.measures.Worst\nformula: y\n", "measure.title is missing"),
        (
            "_target_: dgbench.analysis.measures.Worst\ntitle: x\nformula: y\nneeds: all\n",
            "measure.needs=all is unknown; choose held_out, leave_one_out, everywhere",
        ),
        (
            "_target_: dgbench.analysis.measures.Worst\ntitle: x\nformula: y\nsize: 3\n",
            "measure.size is no key of measure",
        ),
        (
            "_target_: dgbench.analysis.measures.Worst\nname: x\ntitle: x\nformula: y\n",
            "says name: x, and reports name it mine",
        ),
    ],
)
def test_a_file_that_names_no_measure_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with refused(line):
        read_measure(file)


def test_a_file_may_not_take_a_name_of_dgbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gap.yaml").write_text("_target_: dgbench.analysis.measures.Worst\n")
    monkeypatch.setattr(measures, "_own_folders", lambda: [tmp_path])
    with refused("gap.yaml has the name of another measure"):
        choose()

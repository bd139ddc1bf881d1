"""Every report over every protocol: what can be said is right, what cannot names the protocol it
needs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dgbench.analysis.selection import Last, TrainVal
from dgbench.cli.closing import study_table
from dgbench.records.run_identity import DEFAULTS
from dgbench.reports.document import TARGET_ORACLE, Document
from dgbench.reports.measuring.report import MeasuresReport
from dgbench.reports.ranking.report import LeaderboardReport
from dgbench.reports.reading.collect import collect
from dgbench.reports.slices.leakage import LeakageReport
from dgbench.reports.tables import Table
from tests.tables import line

GIVEN = ["a", "b", "c", "d"]
PAIRS = [["a", "b"], ["c", "d"]]

# protocol -> fold -> (held out, tested by every fold, error in each tested environment)
MULTI_TEST = {"0": (["a", "b"], PAIRS, [0.1, 0.2]), "1": (["c", "d"], PAIRS, [0.3, 0.8])}
FIXED = {"0": (["c", "d"], [["d"]], [0.4])}  # c is for validation alone
SINGLE = {  # no list of folds: the given environments tell
    "0": (["b", "c", "d"], None, [0.1, 0.2, 0.3]),
    "1": (["a", "c", "d"], None, [0.2, 0.4, 0.5]),
    "2": (["a", "b", "d"], None, [0.4, 0.5, 0.7]),
    "3": (["a", "b", "c"], None, [0.6, 0.6, 0.6]),
}
ORACLE = {"0": (["c", "d"], PAIRS, [0.05, 0.1]), "1": (["a", "b"], PAIRS, [0.15, 0.2])}
FLEXIBLE = {"0": (["a", "b", "c"], [["a", "b", "c"]], [0.2, 0.4, 0.6])}
PLANS = {"multi_test": MULTI_TEST, "fixed": FIXED, "single_source": SINGLE, "target_oracle": ORACLE}


def folds(
    make: Any, protocol: str, plan: dict[str, Any], root: Path | None = None, **more: Any
) -> list[Any]:
    """Rows of every fold; ``root`` also gets them as run folders.

    Error .01 wherever a fold is not tested.
    """
    rows: list[Any] = []
    for fold, (held_out, tests, errors) in plan.items():
        changes = {
            "protocol": protocol,
            "held_out": held_out,
            "folds": tests,
            "given": GIVEN,
            "dataset": "small",
        }
        name = f"{protocol}-{fold}-{more.get('draw', 0)}"
        own = {**changes, "run": name, "evaluation": "sampled", **more}
        who = make.identity("erm", fold, **own)
        known = dict(zip(tests[int(fold)] if tests else held_out, errors, strict=True))
        found = make.run_rows(
            who, lambda env, step, known=known: known.get(env, 0.01), steps=[5], grid=[]
        )
        rows += [{**DEFAULTS, **json.loads(row.to_json())} for row in found]
        if root:
            make.write_run(
                root,
                who,
                lambda env, step, known=known: known.get(env, 0.01),
                folder=name,
                steps=[5],
                grid=[],
            )
    return rows


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def value(text: str, measure: str) -> str:
    return next(line[-1] for line in lines(text) if line and line[0] == measure)


def tables(document: Document) -> dict[str, Table]:
    return {table.name: table for section in document.sections for table in section.tables}


# ---- the closing table


def test_groups(make: Any) -> None:
    """average (.1 + .2 + .3 + .8) / 4 = .35, worst .8, gap .7; eq. 6 and the ideal ask for
    leave-one-out.
    """
    text = study_table(folds(make, "multi_test", MULTI_TEST), Last())
    assert lines(text)[2:6] == [
        ["0", "a", "5", "10.0"], ["0", "b", "5", "20.0"], ["1", "c", "5", "30.0"],
        ["1", "d", "5", "80.0"],
    ]  # fmt: skip
    assert [value(text, name) for name in ("average", "worst", "gap", "worst+gap", "ideal")] == [
        "35.0", "80.0", "70.0", "-", "-",
    ]  # fmt: skip
    assert "worst+gap: protocol=multi_test does not" in text
    assert "ideal: protocol=multi_test trains" in text


def test_groups_of_one_are_leave_one_out(make: Any) -> None:
    """worst .8 + gap .7 / (4 - 2) = 1.15."""
    tests = [[env] for env in GIVEN]
    plan = {
        str(i): ([env], tests, [error])
        for i, (env, error) in enumerate(zip(GIVEN, [0.1, 0.2, 0.3, 0.8], strict=True))
    }
    assert value(study_table(folds(make, "multi_test", plan), Last()), "worst+gap") == "115.0"


def test_a_group_without_rows_takes_the_measures_away(make: Any) -> None:
    """An average over a part of the environments would be another quantity; the rows of fold 0 name
    fold 1.
    """
    text = study_table(folds(make, "multi_test", {"0": MULTI_TEST["0"]}), Last())
    assert ["1", "d", "-", "-"] in lines(text)
    assert value(text, "average") == "-"
    assert "average, worst, gap, worst+gap: fold 1: no rows" in text


def test_a_validation_environment_is_not_reported(make: Any) -> None:
    text = study_table(folds(make, "fixed", FIXED), Last())
    assert lines(text)[2:5] == [["0", "d", "5", "40.0"], ["average", "40.0"], ["worst", "40.0"]]
    assert "gap: a gap needs 2 or more" in text


def test_an_environment_held_out_by_several_models(make: Any) -> None:
    """(.2 + .4 + .6) / 3 = .4 in a and c, (.1 + .5 + .6) / 3 = .4 in b, (.3 + .5 + .7) / 3 = .5 in
    d.
    """
    text = study_table(folds(make, "single_source", SINGLE), Last())
    assert [line for line in lines(text) if line[:1] == ["1"]] == [
        ["1", "a", "5", "20.0"], ["1", "c", "5", "40.0"], ["1", "d", "5", "50.0"],
    ]  # fmt: skip
    assert [value(text, name) for name in ("average", "worst", "gap")] == ["42.5", "50.0", "10.0"]
    assert "Measures: of each environment's" in text
    assert "worst+gap: protocol=single_source does not" in text


def test_the_oracle_is_marked(make: Any) -> None:
    """The rows of its own environments count though they are not held out; those of others are not
    its result.
    """
    rows = folds(make, "target_oracle", ORACLE)
    assert {r["env_held_out"] for r in rows if r["fold"] == "0" and r["env"] in ("a", "b")} == {
        False
    }
    text = study_table(rows, Last())
    assert lines(text)[1][:2] == ["fold", "tested"]
    assert lines(text)[2] == ["0", "a", "5", "5.0"]
    assert [value(text, name) for name in ("average", "worst", "gap", "worst+gap")] == [
        "12.5",
        "20.0",
        "15.0",
        "-",
    ]
    assert TARGET_ORACLE in text


def test_many_folds_with_one_reason_are_told_once(make: Any) -> None:
    """24 folds, of which 20 failed alike, one otherwise, and two have no rows: no line each, one
    reason each.
    """
    given = [f"e{i}" for i in range(24)]
    who = make.identity("erm", "3", given=given, held_out=["e3"])
    rows = [
        {**DEFAULTS, **json.loads(r.to_json())}
        for r in make.run_rows(who, lambda e, s: 0.25, steps=[5], grid=[])
    ]
    failed = {str(i): "failed: no space left" for i in range(4, 24)} | {
        "0": "failed: loss became nan"
    }
    text = study_table(rows, Last(), failed)
    assert [line for line in lines(text) if line[0].isdecimal()] == [["3", "e3", "5", "25.0"]]
    why = "folds 4-23: failed: no space left; fold 0: failed: loss became nan; folds 1, 2: no rows"
    assert f"average, worst, gap, worst+gap: {why}" in text
    assert "ideal: fold full (trained on all given environments): no rows" in text


# ---- reports


def test_measures(make: Any, tmp_path: Path) -> None:
    """One section per protocol; worst+gap is absent in each with its reason, and what exists is
    that of the tables.
    """
    for protocol, plan in PLANS.items():
        folds(make, protocol, plan, tmp_path)
    document = MeasuresReport()(collect([tmp_path]), Last())
    found = {
        section.title: {table.name: table for table in section.tables}
        for section in document.sections
    }
    assert len(found) == 4
    averages = {"fixed": 0.4, "multi_test": 0.35, "single_source": 0.425, "target_oracle": 0.125}
    for title, own in found.items():
        (protocol,) = (name for name in averages if f"protocol={name}" in title)
        erm = line(own["measures"], "erm")
        assert erm["average"].value == pytest.approx(averages[protocol])
        assert erm["worst_gap"].value is None
        assert f"protocol={protocol} does not" in erm["worst_gap"].reason
        assert title.startswith("TARGET ORACLE ") == (protocol == "target_oracle")
        (note,) = own["held_out_errors"].notes
        assert (note == TARGET_ORACLE) == (protocol == "target_oracle")
        assert "Leave-one" not in note
    assert TARGET_ORACLE in document.warnings
    (fixed,) = (own["held_out_errors"] for title, own in found.items() if "protocol=fixed" in title)
    assert [column.shown for column in fixed.columns] == ["algorithm", "d (%)"]


def test_studies_with_other_groups_stand_apart(make: Any, tmp_path: Path) -> None:
    """Fold 0 of one grouping never stands in for fold 0 of another."""
    other = [["a", "c"], ["b", "d"]]
    folds(make, "multi_test", MULTI_TEST, tmp_path / "one")
    second = {"0": (["a", "c"], other, [0.5, 0.5]), "1": (["b", "d"], other, [0.5, 0.5])}
    folds(make, "multi_test", second, tmp_path / "two", run="other")
    for fold in ("0", "1"):  # run hashes differ, as they do in real studies
        file = tmp_path / "two" / f"multi_test-{fold}-0" / "errors.jsonl"
        file.write_text(file.read_text().replace('"run":"other"', f'"run":"other-{fold}"'))
    found = MeasuresReport()(collect([tmp_path]), Last())
    titles = [section.title for section in found.sections if "folds=" in section.title]
    assert sorted(titles) == [
        "small folds=a+b-c+d, digits, sampled",
        "small folds=a+c-b+d, digits, sampled",
    ]


def test_leaderboard(make: Any, tmp_path: Path) -> None:
    """Accuracies by hand: one less the errors above; the oracle has a board of its own that says
    what it is.
    """
    for protocol, plan in PLANS.items():
        folds(make, protocol, plan, tmp_path)
    document = LeaderboardReport()(collect([tmp_path]), Last())
    found = {}
    for section in document.sections:
        if "protocol" in section.title:
            table = next(t for t in section.tables if t.name.startswith("dataset_"))
            found[section.title.split()[-1]] = (section.title, table, line(table, "erm"))
    assert {name: erm["average"].value for name, (_, _, erm) in found.items()} == pytest.approx(
        {"multi_test": 0.65, "fixed": 0.6, "single_source": 0.575, "target_oracle": 0.875}
    )
    assert found["single_source"][2]["d"].value == pytest.approx(0.5)
    assert [env for env in GIVEN if env in found["fixed"][1].frame] == ["d"]
    assert found["target_oracle"][0].startswith("TARGET ORACLE")
    assert TARGET_ORACLE in found["target_oracle"][1].notes
    assert TARGET_ORACLE in document.warnings
    assert sum(TARGET_ORACLE in table.notes for _, table, _ in found.values()) == 1


def test_a_group_that_no_run_has_is_missing_by_name(make: Any, tmp_path: Path) -> None:
    """The plan stands in the rows, so a board knows of fold 1 though it was never started."""
    folds(make, "multi_test", {"0": MULTI_TEST["0"]}, tmp_path)
    document = LeaderboardReport()(collect([tmp_path]), Last())
    erm = line(next(t for t in document.sections[0].tables if t.name.startswith("dataset_")), "erm")
    assert erm["a"].value == pytest.approx(0.9)
    assert erm["c"].value is None
    assert "holds out c, d" in erm["c"].reason
    assert "protocol.folds=[1]" in erm["c"].reason


def test_leakage_over_two_test_domains(make: Any, tmp_path: Path) -> None:
    """Draw 1 is better on the test domains, draw 0 on validation; the oracle over both gains its
    mean, and ``target_oracle``, which holds nothing out, has no section.
    """
    for draw, errors in enumerate([[0.3, 0.4], [0.1, 0.2]]):
        plan = {"0": (["a", "b"], [["a", "b"]], errors)}
        folds(make, "multi_test", plan, tmp_path, draw=draw, hparams={"lr": draw}, run=f"m{draw}")
        folds(make, "target_oracle", plan | {"0": (["c", "d"], [["a", "b"]], errors)}, tmp_path,
            draw=draw,
              hparams={"lr": draw}, run=f"o{draw}")  # fmt: skip
    document = LeakageReport()(collect([tmp_path]), TrainVal())
    (section,) = document.sections
    assert "multi_test" in str(section.facts)
    assert set(section.tables[0].frame["chosen by"]) == {"validation", "oracle, K=1", "oracle, K=2"}

"""Keys of reports of a wrong type or beyond their bounds: one line with key and value, before any
row is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dgbench.configuration import CONF
from dgbench.plan.building import build
from dgbench.reports.document import ReportKeys
from dgbench.validation import Checked, shown
from tests.complaints import one_line, refused

WRONG: tuple[Any, ...] = (-1, 1.5, float("nan"), "", ["a", 1], {"a": 1})
FILES = sorted((CONF / "report").glob("*.yaml"))
TOP = {
    "runs": "outputs",
    "cache": True,
    "output": "reports",
    "only": None,
    "notes": "full",
    "split_by": None,
    "same_code": [],
}
#: values of :data:`WRONG` that a key takes
RIGHT = {
    "status.every": (1.5,),
    "status.stuck_after": (1.5,),
    **{f"{name}.roots": ("",) for name in ("shift", "status")},
    "theory.shifts_from": ("",),
    "leaderboard.distances_from": ("",),
}


def _content(file: Any) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(file.read_text())
    values = {"${runs}": "outputs"}
    return {key: values.get(str(value), value) for key, value in content.items()}


def _keys() -> list[tuple[Any, str]]:
    return [
        (file, key)
        for file in FILES
        for key in _content(file)
        if key not in ("_target_", "statistics")
    ]


@pytest.mark.parametrize(("file", "key"), _keys(), ids=lambda value: getattr(value, "stem", value))
def test_every_key_of_every_report(file: Any, key: str) -> None:
    content = _content(file)
    assert isinstance(build({"report": content}, "report", _convert_="all"), Checked)
    for value in WRONG:
        if key == "shifts" and isinstance(value, dict):
            continue  # merged with what stands there, and refused by its value, see below
        if not any(value == right for right in RIGHT.get(f"{file.stem}.{key}", ())):
            with refused(rf"report\.{key}"):
                build({"report": {**content, key: value}}, "report", _convert_="all")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("draws", -1), ("draws", 0), ("draws", "abc"), ("level", 1.5), ("level", 1 - 1e-16),
        ("level", float("nan")), ("level", "abc"),
        ("level", None), ("seed", -1), ("seed", [1]),
    ],
)  # fmt: skip
def test_statistics(key: str, value: Any) -> None:
    content = _content(CONF / "report" / "measures.yaml")
    content["statistics"] = {**content["statistics"], key: value}
    with refused(rf"report\.statistics\.{key}={'' if value == [1] else shown(value)}"):
        build({"report": content}, "report", _convert_="all")


@pytest.mark.parametrize(
    ("name", "key", "value", "fix"),
    [
        ("power", "power", 1 - 1e-16, "0.8 is usual"),
        ("power", "power", 0.9999, "0.8 is usual"),
        ("claims", "tables", [], "null for all"),
    ],
)
def test_values_that_make_no_sense(name: str, key: str, value: Any, fix: str) -> None:
    """All but certainty would need millions of seeds; no table at all leaves nothing to judge."""
    content = _content(CONF / "report" / f"{name}.yaml")
    with refused(rf"report\.{key}[= ].*{fix}"):
        build({"report": {**content, key: value}}, "report", _convert_="all")


@pytest.mark.parametrize(
    ("key", "value"), [("statistics", 5), ("shifts", {"pacs": 5}), ("shifts", {"pacs": "x"})]
)
def test_keys_with_keys(key: str, value: Any) -> None:
    name = "measures" if key == "statistics" else "leaderboard"
    with refused(rf"report\.{key}"):
        build(
            {"report": {**_content(CONF / "report" / f"{name}.yaml"), key: value}},
            "report",
            _convert_="all",
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("only", 5), ("only", ""), ("only", [1]), ("only", []), ("output", "x.html"),
        ("output", 5), ("output", ""), ("output", None),
        ("cache", "abc"), ("runs", 5), ("runs", None), ("same_code", 5), ("same_code", None),
        ("split_by", -1),
        ("split_by", ""), ("notes", "brief"), ("notes", None),
    ],
)  # fmt: skip
def test_keys_above_the_groups(key: str, value: Any) -> None:
    ReportKeys.model_validate(TOP)
    with refused(rf"^{key}[= ]"):
        ReportKeys.model_validate({**TOP, key: value})


#: words that change nothing -> what is said of them
WITHOUT_EFFECT = {
    "report=leaderboard report.reference=nope": r"report\.reference=nope .*rows.*erm, vrex",
    "report.baseline=nope": r"report\.baseline=nope .*rows.*erm, vrex",
    "report=curves report.baseline=nope": r"report\.baseline=nope .*rows.*erm, vrex",
    "selection=ood_val selection.environments=[zz]": (
        r"selection\.environments names zz.*choose from 0\.90, 0\.85"
    ),
    "report=leaderboard report.shifts_estimator=joint": (
        r"report\.shifts_estimator=joint is of an earlier version: "
    ),
    "report=leaderboard report.shifts_from=[outputs]": (
        r"report\.shifts_from is of .* report=leaderboard: report\.shifts="
    ),
    "report=curves selection=train_val": r"selection=train_val .*report=curves.*leave it out",
    "report=errors selection=train_val": r"selection=train_val .*report=errors",
    "report=features split_by=code": r"split_by=code .*report=features",
    "report=shift selection.environments=[a] selection=ood_val": (
        r"selection\.environments=\[a\] .*report=shift"
    ),
    "report=status only=[measures]": r"only=\[measures\] .*report=status",
    "report.output=x": r"did you mean output \(not report\.output\)\?",
    "leaderboard": r"leaderboard names no key; did you mean report=leaderboard\?",
    "output=reports/mine.html": r"output=reports/mine\.html .*folder.*output=reports/mine$",
}


@pytest.mark.thorough
@pytest.mark.parametrize("words", WITHOUT_EFFECT)
def test_words_without_effect(words: str, command: Any, small_study: Path, tmp_path: Path) -> None:
    runs = () if "import=" in words else (f"runs=[{small_study}]",)
    ended = command("report.py", *words.split(), *runs, cwd=tmp_path)
    assert (ended.code, len(ended.complaints)) == (1, 1), ended.err
    one_line(ended.complaints[0], WITHOUT_EFFECT[words])
    assert not (tmp_path / "reports").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words", ["report.baseline=erm", "report=leaderboard report.reference=erm", "report=curves"]
)
def test_the_usual_algorithm_may_be_absent(
    words: str, command: Any, make: Any, tmp_path: Path
) -> None:
    for fold, env in enumerate(make.GIVEN):
        make.write_run(tmp_path, make.identity("vrex", str(fold), held_out=[env]))
    ended = command("report.py", *words.split(), f"runs=[{tmp_path}]", cwd=tmp_path)
    assert ended.code == 0, ended.err

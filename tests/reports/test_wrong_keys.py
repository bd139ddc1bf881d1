"""Keys of reports of a wrong type or beyond their bounds: one line with key and value, before any row is read."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from dgbench.configuration import CONF
from dgbench.plan.building import build
from dgbench.reports.document import ReportKeys
from dgbench.validation import Checked, shown
from tests.complaints import refused

WRONG: tuple[Any, ...] = (-1, 1.5, float("nan"), "", ["a", 1], {"a": 1})
FILES = sorted((CONF / "report").glob("*.yaml"))
TOP = {
    "runs": "outputs",
    "cache": True,
    "trust": False,
    "output": "reports",
    "only": None,
    "split_by": None,
    "same_code": [],
}
#: values of :data:`WRONG` that a key takes
RIGHT = {
    "status.every": (1.5,),
    "status.stuck_after": (1.5,),
    "reproduce.run": (-1, ""),  # looked for, and not found
    **{f"{name}.roots": ("",) for name in ("reproduce", "shift", "status")},
    "leaderboard.shifts_from": ("",),
}


def _content(file: Any) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(file.read_text())
    values = {"${trust}": False, "${run}": "0123", "${runs}": "outputs"}
    return {key: values.get(str(value), value) for key, value in content.items()}


def _keys() -> list[tuple[Any, str]]:
    return [(file, key) for file in FILES for key in _content(file) if key not in ("_target_", "statistics")]


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
        ("draws", -1), ("draws", 0), ("draws", "abc"), ("level", 1.5), ("level", float("nan")), ("level", "abc"),
        ("level", None), ("seed", -1), ("seed", [1]),
    ],
)  # fmt: skip
def test_statistics(key: str, value: Any) -> None:
    content = _content(CONF / "report" / "measures.yaml")
    content["statistics"] = {**content["statistics"], key: value}
    with refused(rf"report\.statistics\.{key}={'' if value == [1] else shown(value)}"):
        build({"report": content}, "report", _convert_="all")


@pytest.mark.parametrize(("key", "value"), [("statistics", 5), ("shifts", {"pacs": 5}), ("shifts", {"pacs": "x"})])
def test_keys_with_keys(key: str, value: Any) -> None:
    name = "measures" if key == "statistics" else "leaderboard"
    with refused(rf"report\.{key}"):
        build({"report": {**_content(CONF / "report" / f"{name}.yaml"), key: value}}, "report", _convert_="all")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("only", 5), ("only", "measures"), ("only", [1]), ("output", 5), ("output", ""), ("output", None),
        ("cache", "abc"), ("runs", 5), ("runs", None), ("same_code", 5), ("same_code", None), ("split_by", -1),
        ("split_by", ""),
    ],
)  # fmt: skip
def test_keys_above_the_groups(key: str, value: Any) -> None:
    ReportKeys.model_validate(TOP)
    with refused(rf"^{key}[= ]"):
        ReportKeys.model_validate({**TOP, key: value})

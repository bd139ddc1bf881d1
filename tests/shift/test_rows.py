"""Rows of estimated shift: written, read, and told apart from whatever else a file holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dgbench.records.shift_rows import ShiftIdentity, ShiftRow, append_shift_rows, read_shift_rows

IDENTITY = ShiftIdentity(
    run="0123456789ab", dataset="pacs", variant={"image_size": 64}, base="files",
    evaluation="sampled", data_seed=0, split_seed=0, given=["art", "photo"], backbone="resnet18",
    init="random", features="frozen", images="all", estimator="joint", settings={"delta": 0.05},
    seed=0, code="1",
)  # fmt: skip
ROW = ShiftRow(
    identity=IDENTITY, pairs="each", pair="art|photo", p=["art"], q=["photo"], kind="trial",
    number=0, null="none", n=[30, 30], classes=["dog", "cat"], dropped={"horse": [2, 40]},
    values={"div": 0.5}, diagnostics={"ess": 3.0}, seconds=1.5,
)  # fmt: skip


def test_a_row_reads_back_and_the_last_of_one_key_counts(tmp_path: Path) -> None:
    other = replace(ROW, number=1)
    append_shift_rows(tmp_path / "f", [ROW, other])
    append_shift_rows(tmp_path / "f", [replace(ROW, values={"div": 0.25})])
    rows, problems = read_shift_rows(tmp_path / "f")
    assert (rows, problems) == ([replace(ROW, values={"div": 0.25}), other], [])


def test_a_torn_line_is_named_and_cut_off_before_more_is_written(tmp_path: Path) -> None:
    file = tmp_path / "f"
    append_shift_rows(file, [ROW])
    with file.open("a") as torn:
        torn.write(ROW.to_json()[:40])
    rows, problems = read_shift_rows(file)
    assert (rows, [problem.line for problem in problems]) == ([ROW], [2])
    append_shift_rows(file, [replace(ROW, number=1)])
    assert read_shift_rows(file)[1] == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"values": {"div": "much"}}, "values has div"),
        ({"n": [1.5, 2]}, "n has an"),
        ({"kind": "third"}, "kind=third"),
        ({"number": -1}, "number=-1"),
        ({"dropped": {"dog": 3}}, "dropped has dog"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    (tmp_path / "f").write_text(json.dumps({**json.loads(ROW.to_json()), **change}))
    rows, problems = read_shift_rows(tmp_path / "f")
    assert not rows
    assert reason in problems[0].reason

"""``shifts.jsonl`` files under a folder:
each estimate once, and whatever cannot be used is named.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dgbench.errors import RecordError
from dgbench.records.shift_rows import SHIFT_FILE
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.shifts import read_shifts
from tests.shift.synthetic import estimates, shift_identity, shift_row, write_shifts

ROWS = estimates(shift_identity(), {"0": {"div": 0.5}, "1": {"div": 0.3}})


def test_rows_are_found_in_every_folder_but_hidden_ones(tmp_path: Path) -> None:
    first = write_shifts(tmp_path / "deep" / "down", ROWS)
    write_shifts(tmp_path / ".hidden", estimates(shift_identity("vlcs"), {"0": {"div": 0.5}}))
    other = write_shifts(tmp_path, estimates(shift_identity("office_home"), {"0": {"div": 0.5}}))
    found = read_shifts([tmp_path, tmp_path / "deep"])
    assert len(found.rows) == 6 + 3
    assert set(found.folders) == {str(first), str(other)}
    assert found.problems == []


def test_equal_rows_of_two_folders_count_once(tmp_path: Path) -> None:
    """The copy lacks a pair, so the other folder is used;
    the code version makes no other estimate.
    """
    kept = write_shifts(tmp_path, ROWS, "b_whole")
    write_shifts(
        tmp_path,
        [replace(row, identity=replace(row.identity, code="0.2.0")) for row in ROWS[:3]],
        "a_part",
    )
    found = read_shifts(tmp_path)
    assert found.folders == [str(kept)]
    assert len(found.rows) == 6
    (problem,) = found.problems
    assert (problem.kind, problem.where) == ("duplicate", str(tmp_path / "a_part"))
    assert problem.reason == f"3 estimates stand in {kept} too, which is used"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"values": {"div": 0.5}}, "div differs by 0.01"),
        ({"values": {"div": 0.49, "cor": 0.1}}, "cor differs by"),
        ({"values": {}, "refused": "failed fit"}, "them is refused"),
    ],
)
def test_rows_that_disagree_are_named(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    write_shifts(tmp_path, ROWS, "a")
    write_shifts(tmp_path, [replace(ROWS[0], **changed), ROWS[1]], "b")  # type: ignore[arg-type]
    found = read_shifts(tmp_path)
    assert found.rows[0].values == {"div": 0.49}
    (problem,) = found.problems
    assert (problem.kind, problem.where) == ("disagreement", str(tmp_path / "b"))
    assert problem.reason.startswith("2 estimates stand in ")
    assert re.search(rf"; 1 differ, e\.g\. .*{said}", problem.reason)


def test_other_seeds_and_settings_are_no_duplicates(tmp_path: Path) -> None:
    for at, changes in enumerate(
        ({}, {"seed": 1}, {"settings": {"delta": 0.01}}, {"features": "trained"})
    ):
        write_shifts(
            tmp_path, [shift_row(shift_identity(**changes), values={"div": 0.1 * at})], str(at)
        )  # type: ignore[arg-type]
    found = read_shifts(tmp_path)
    assert (len(found.rows), found.problems) == (4, [])


def test_what_cannot_be_used_is_a_problem(tmp_path: Path) -> None:
    folder = write_shifts(tmp_path, ROWS)
    lines = (folder / SHIFT_FILE).read_text().splitlines()
    broken = json.dumps({**json.loads(lines[0]), "values": {"div": "much"}})
    (folder / SHIFT_FILE).write_text("\n".join([broken, *lines[1:], '{"half a li']) + "\n")
    (folder / "status").write_text("FAILED out of memory\n")
    empty = tmp_path / "planned"
    empty.mkdir()
    (empty / SHIFT_FILE).touch()
    found = read_shifts([tmp_path, tmp_path / "absent"])
    assert len(found.rows) == 5
    problems = {problem.kind: problem for problem in found.problems}
    assert "same command continues" in problems["failed estimates"].reason
    assert problems["estimates without rows"].where == str(empty)
    assert problems["no such folder"].where == str(tmp_path / "absent")
    bad = sorted(problem.where for problem in found.problems if problem.kind == "unreadable row")
    assert bad == [f"{folder / SHIFT_FILE}:1", f"{folder / SHIFT_FILE}:7"]


def test_nothing_found_says_how_to_make_rows(tmp_path: Path) -> None:
    with pytest.raises(
        RecordError,
        match=r"no rows of shifts.jsonl under .*; make some with `.*shift.* dataset=pacs`",
    ):
        read_shifts(tmp_path)


def test_folders_of_estimates_are_no_runs(tmp_path: Path) -> None:
    folder = write_shifts(tmp_path, ROWS)
    (folder / "status").write_text("DONE\n")
    (folder / "config.yaml").write_text("dataset: {}\n")
    with pytest.raises(RecordError, match="no runs under"):
        collect([tmp_path])

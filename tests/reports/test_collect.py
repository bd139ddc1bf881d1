"""Run folders with everything that goes wrong in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dgbench.errors import RecordError
from dgbench.records import ROW_FILE
from dgbench.reports.collect import Collection, collect


def kinds(collection: Collection) -> list[str]:
    return [problem.kind for problem in collection.problems]


def test_rows_and_compact_types(make: Any, tmp_path: Path) -> None:
    """One fold: 2 steps x (4 val + 4 test) rows."""
    make.write_member(tmp_path / "deep" / "er", make.identity(), lambda env, step: 0.25)
    found = collect([tmp_path])
    assert len(found.rows) == 16
    assert found.problems == []
    assert found.runs[0].last_step == 200
    assert set(found.rows["wrong"]) == {250.0}
    assert [str(found.rows[c].dtype) for c in ("run", "step", "env", "env_held_out", "wrong")] == [
        "int32", "int32", "category", "bool", "float64",
    ]  # fmt: skip


def test_no_runs_names_the_command(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match=r"no runs under .*python train\.py"):
        collect([tmp_path, tmp_path / "absent"])


def test_half_written_and_impossible_lines_are_named(make: Any, tmp_path: Path) -> None:
    folder = make.write_member(tmp_path, make.identity())
    row = json.loads(make.member_rows(make.identity(), lambda e, s: 0.1)[0].to_json())
    with open(folder / ROW_FILE, "a") as handle:
        handle.write(json.dumps({**row, "step": 300, "wrong": 2000}) + "\n")
        handle.write(json.dumps({**row, "step": 300, "seen": 0}) + "\n")
        handle.write(json.dumps({**row, "step": 300, "wrong": "many"}) + "\n")
        handle.write('{"run": "er')
    found = collect([tmp_path])
    assert len(found.rows) == 16
    assert kinds(found) == ["dropped line", "dropped row", "dropped row", "dropped row"]
    assert found.problems[0].where.endswith(f"{ROW_FILE}:20")


def test_rows_written_twice_count_once(make: Any, tmp_path: Path) -> None:
    folder = make.write_member(tmp_path, make.identity())
    text = (folder / ROW_FILE).read_text()
    (folder / ROW_FILE).write_text(text + text)
    found = collect([tmp_path])
    assert len(found.rows) == 16
    assert kinds(found) == ["repeated rows"]


def test_status_marks(make: Any, tmp_path: Path) -> None:
    make.write_member(tmp_path, make.identity(fold="0"), status="FAILED loss became nan at step 40")
    make.write_member(tmp_path, make.identity(fold="1"), status="RUNNING")
    make.write_member(tmp_path, make.identity(fold="2"), status="???")
    (make.write_member(tmp_path, make.identity(fold="3")) / "status").unlink()
    make.write_member(tmp_path, make.identity(fold="full"))
    found = collect([tmp_path])
    assert [run.unusable == "" for run in found.runs] == [False, False, False, False, True]
    assert kinds(found) == ["failed run", "still running", "no status", "no status"]
    assert "nan at step 40" in found.problems[0].reason


def test_folders_without_rows(make: Any, tmp_path: Path) -> None:
    make.write_member(tmp_path, make.identity())
    for name, file, text in (
        ("f", "status", "FAILED out of memory"),
        ("r", "status", "RUNNING"),
        ("c", "config.yaml", ""),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    (tmp_path / "nothing").mkdir()
    found = collect([tmp_path, tmp_path / "typo"])
    assert sorted(kinds(found)) == [
        "empty folder", "failed run without rows", "no such folder", "running run without rows",
        "unknown run without rows",
    ]  # fmt: skip
    assert any(problem.reason == "out of memory" for problem in found.problems)


def test_a_study_folder_around_runs_is_no_run(make: Any, tmp_path: Path) -> None:
    make.write_member(tmp_path / "study", make.identity())
    (tmp_path / "study" / "config.yaml").write_text("")
    (tmp_path / "study" / ".hydra").mkdir()
    (tmp_path / "study" / ".hydra" / "config.yaml").write_text("")
    assert collect([tmp_path]).problems == []


def test_duplicates_keep_the_finished_one(make: Any, tmp_path: Path) -> None:
    make.write_member(tmp_path, make.identity(), status="RUNNING", folder="a")
    make.write_member(tmp_path, make.identity(), folder="b")
    found = collect([tmp_path])
    assert [run.folder for run in found.runs] == [str(tmp_path / "b")]
    assert [p.where for p in found.problems if p.kind == "duplicate"] == [str(tmp_path / "a")]


def test_one_member_under_two_hashes_keeps_the_longer(make: Any, tmp_path: Path) -> None:
    make.write_member(tmp_path, make.identity(run="x"), folder="a", steps=(100,))
    make.write_member(tmp_path, make.identity(run="y"), folder="b", steps=(100, 200))
    found = collect([tmp_path])
    assert [run.identity["run"] for run in found.runs] == ["y"]
    assert "another run hash" in found.problems[0].reason


def test_overlapping_roots_read_a_run_once(make: Any, tmp_path: Path) -> None:
    make.write_member(tmp_path / "sub", make.identity())
    found = collect([tmp_path, tmp_path / "sub"])
    assert len(found.runs) == 1
    assert found.problems == []


def test_a_copied_folder_is_a_duplicate(make: Any, tmp_path: Path) -> None:
    folder = make.write_member(tmp_path, make.identity())
    shutil.copytree(folder, tmp_path / "zz_copy")
    assert kinds(collect([tmp_path])) == ["duplicate"]

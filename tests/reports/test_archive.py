"""Rows of many runs in one file."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgbench.errors import RecordError
from dgbench.reports.archive import main
from dgbench.reports.collect import collect


def _runs(make: Any, folder: Path) -> Path:
    for seed in (0, 1):
        make.write_member(folder / str(seed), make.identity(seed=seed), lambda env, step: 0.25)
    return folder


def test_an_archive_gives_what_the_folders_gave(make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = _runs(make, tmp_path / "runs"), tmp_path / "rows.jsonl.xz"
    assert main([str(file), str(folder)]) == 0
    assert "2 runs, 32 rows" in capsys.readouterr().out
    before, after = collect([folder]), collect([file])
    assert after.runs == before.runs
    pd.testing.assert_frame_equal(after.rows, before.rows)
    assert after.problems == []


def test_archive_and_folders_mix_and_the_same_run_counts_once(make: Any, tmp_path: Path) -> None:
    folder, file = _runs(make, tmp_path / "runs"), tmp_path / "rows.jsonl.xz"
    main([str(file), str(folder)])
    make.write_member(tmp_path / "new", make.identity(seed=2), lambda env, step: 0.5)
    found = collect([file, folder / "0", tmp_path / "new"])
    assert [run.identity["seed"] for run in found.runs] == [0, 1, 2]
    assert [problem.kind for problem in found.problems] == ["duplicate"]


def test_a_folder_of_archives_is_read_like_its_files(make: Any, tmp_path: Path) -> None:
    folder, shelf = _runs(make, tmp_path / "runs"), tmp_path / "shelf"
    shelf.mkdir()
    for seed in ("0", "1"):
        main([str(shelf / f"{seed}.jsonl.xz"), str(folder / seed)])
    (shelf / "README.md").write_text("no archive")
    assert collect([shelf]).runs == collect([folder]).runs


def test_keys_that_are_younger_than_an_archive_get_their_defaults(make: Any, tmp_path: Path) -> None:
    folder, file = _runs(make, tmp_path / "runs"), tmp_path / "rows.jsonl.xz"
    main([str(file), str(folder)])
    with lzma.open(file, "rt") as handle:
        lines = [json.loads(line) for line in handle]
    for line in lines:
        del line["run"]["identity"]["averaging"]
    with lzma.open(file, "wt") as handle:
        handle.writelines(json.dumps(line) + "\n" for line in lines)
    assert {run.identity["averaging"] for run in collect([file]).runs} == {"none"}


@pytest.mark.parametrize("content", [b"", b"no archive", lzma.compress(b"{"), lzma.compress(b'{"run": 1}\n')])
def test_what_is_no_archive_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rows.jsonl.xz"
    file.write_bytes(content)
    with pytest.raises(RecordError, match=r"rows\.jsonl\.xz is no whole archive|no runs under"):
        collect([file])


def test_a_cut_archive_is_named(make: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl.xz"
    main([str(file), str(_runs(make, tmp_path / "runs"))])
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(RecordError, match="no whole archive"):
        collect([file])


def test_wrong_command_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["only.jsonl.xz"]) == 1
    assert "usage" in capsys.readouterr().err
    assert main([str(tmp_path / "f.jsonl.xz"), str(tmp_path / "absent")]) == 1
    assert "no runs under" in capsys.readouterr().err

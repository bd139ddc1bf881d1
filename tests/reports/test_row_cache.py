"""Rows that a report keeps for the next one: the same report, however the file of them fares."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgbench.analysis.selection import Last
from dgbench.records.rows import ROW_FILE, append_rows
from dgbench.reports.evaluation import evaluate
from dgbench.reports.reading import row_cache, row_files
from dgbench.reports.reading.collect import Collection, collect
from dgbench.reports.reading.row_cache import CACHE_FILE
from dgbench.reports.reading.selected import select_runs


@pytest.fixture
def root(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs an hour old, one with a torn line, one resumed by other code; a cache is worth it
    from a byte on.
    """
    monkeypatch.setattr(row_cache, "WORTH_CACHING", 1)
    root = tmp_path / "runs"
    for fold in ("0", "1", "full"):
        make.write_run(root / "study", make.identity(fold=fold), together=3)
    file = root / "study" / "erm_seed0_fold0" / ROW_FILE
    file.write_bytes(file.read_bytes()[:-9])
    append_rows(
        root / "study" / "erm_seed0_fold1" / ROW_FILE,
        make.run_rows(make.identity(fold="1", code="0.2.0"), lambda env, step: 0.5, (300,)),
    )
    for file in root.rglob(ROW_FILE):
        age(file, 3600)
    return root


def age(file: Path, seconds: float) -> None:
    about = file.stat()
    os.utime(file, (about.st_atime, about.st_mtime - seconds))


def same(one: Collection, other: Collection) -> None:
    pd.testing.assert_frame_equal(one.rows, other.rows, check_exact=True)
    assert list(one.rows["env"].cat.categories) == list(other.rows["env"].cat.categories)
    assert (one.runs, one.problems, one.without_rows) == (
        other.runs,
        other.problems,
        other.without_rows,
    )
    assert json.dumps([run.identity for run in one.runs]) == json.dumps(
        [run.identity for run in other.runs]
    )


def parsed(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the run folders whose row files a report with a cache parses; it is the same as one
    without.
    """
    found: list[str] = []
    read = row_cache.read_row_file

    def told(file: Path, *more: Any) -> Any:
        found.append(file.parent.name.removeprefix("erm_seed0_"))
        return read(file, *more)

    with monkeypatch.context() as patch:
        patch.setattr(row_cache, "read_row_file", told)
        cached = collect([root], cache=True)
    same(cached, collect([root]))
    return found


def test_the_second_report_reads_no_row_file_and_is_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = collect([root])
    assert not (root / CACHE_FILE).exists()
    same(collect([root], cache=True), plain)
    assert (root / CACHE_FILE).exists()
    monkeypatch.setattr(row_cache, "read_row_file", lambda *_: pytest.fail("a row file was read"))
    same(collect([root], cache=True), plain)
    kinds = [problem.kind for problem in plain.problems]
    assert kinds == ["dropped line", "run that lacks rows", "several code versions"]


def test_runs_of_a_cache_share_the_names_of_their_keys(root: Path) -> None:
    collect([root], cache=True)
    first, second, _ = collect([root], cache=True).runs
    keys = zip(first.identity, second.identity, strict=True)
    assert all(one is other for one, other in keys)


def test_names_in_the_frames_of_a_report_are_strings_of_python(root: Path) -> None:
    """Arrow's take more memory and make tables slower; pandas 3 chooses them by itself."""
    selected = select_runs(collect([root]), Last())
    assert set(selected.tests[["algorithm", "fold", "role", "env"]].dtypes) == {np.dtype(object)}
    errors = evaluate(selected, "code").errors
    names = ["setting", "algorithm", "role", "env", "error.reason"]
    assert set(errors[names].dtypes) == {np.dtype(object)}


def test_only_what_changed_is_read_again(
    make: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new run, rows appended, other rows of the same size, a run that is gone, another status."""
    assert parsed(root, monkeypatch) == ["fold0", "fold1", "foldfull"]
    age(make.write_run(root / "study", make.identity(fold="2")) / ROW_FILE, 3600)
    assert parsed(root, monkeypatch) == ["fold2"]
    full = root / "study" / "erm_seed0_foldfull"
    append_rows(
        full / ROW_FILE, make.run_rows(make.identity(fold="full"), lambda env, step: 0.5, (300,))
    )
    age(full / ROW_FILE, 1800)
    assert parsed(root, monkeypatch) == ["foldfull"]
    other = root / "study" / "erm_seed0_fold2" / ROW_FILE
    other.write_text(other.read_text().replace('"wrong":250.0', '"wrong":777.0'))
    age(other, 60)
    assert parsed(root, monkeypatch) == ["fold2"]
    assert set(collect([root / "study" / "erm_seed0_fold2"], cache=True).rows["wrong"]) == {777.0}
    shutil.rmtree(root / "study" / "erm_seed0_fold1")
    (full / "status").write_text("FAILED no space left\n")
    assert parsed(root, monkeypatch) == []
    assert len(collect([root], cache=True).runs) == 3


def test_a_file_that_may_still_change_is_not_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where times are coarse it may be written again within its time."""
    file = root / "study" / "erm_seed0_fold1" / ROW_FILE
    os.utime(file)
    collect([root], cache=True)
    assert parsed(root, monkeypatch) == ["fold1"]


def test_the_same_folder_under_another_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, through a link, renamed: the rows are those that were kept, the paths those that
    were named.
    """
    collect([root], cache=True)
    monkeypatch.chdir(root.parent)
    assert parsed(Path("runs"), monkeypatch) == []
    assert collect(["runs"], cache=True).runs[0].folder == "runs/study/erm_seed0_fold0"
    Path("link").symlink_to("runs")
    assert parsed(Path("link"), monkeypatch) == []
    root.rename("renamed")
    assert parsed(Path("renamed"), monkeypatch) == []


@pytest.mark.parametrize("place", [0.0, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("what", ["gone", "cut", "flipped"])
def test_a_corrupt_cache_is_passed_over_and_made_again(
    root: Path, what: str, place: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect([root], cache=True)
    file = root / CACHE_FILE
    content = bytearray(file.read_bytes())
    at = min(len(content) - 1, int(place * len(content)))
    content[at] ^= 0xFF
    file.write_bytes(content[:at] if what == "cut" else content)
    if what == "gone":
        file.unlink()
    again = parsed(root, monkeypatch)
    assert again == ["fold0", "fold1", "foldfull"] or (
        what == "flipped" and again == []
    )  # not all bytes matter
    assert parsed(root, monkeypatch) == []


def test_a_damaged_cache_is_named(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    collect([root], cache=True)
    file = root / CACHE_FILE
    file.write_bytes(file.read_bytes()[:-40])
    collect([root], cache=True)
    assert [record.getMessage() for record in caplog.records] == [
        f"{file} is damaged; it is made again"
    ]
    caplog.clear()
    collect([root], cache=True)
    assert not caplog.records


def test_a_cache_of_other_rows_is_named_and_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy, or a disk that was put back, gives other rows the size and the times of those that
    were read.
    """
    for module in (row_cache, row_files):
        monkeypatch.setattr(module, "stamp_of", lambda about: (about.st_size, 0, 0))
    collect([root], cache=True)
    other = root / "study" / "erm_seed0_foldfull" / ROW_FILE
    other.write_text(other.read_text().replace('"wrong":250.0', '"wrong":777.0'))
    age(other, 60)
    assert parsed(root, monkeypatch) == ["fold0", "fold1", "foldfull"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{root / CACHE_FILE} was made from other rows; it is made again"
    ]
    assert parsed(root, monkeypatch) == []


def test_a_cache_of_other_code_is_passed_over(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect([root], cache=True)
    monkeypatch.setattr(row_cache, "_version", lambda: "another")
    assert parsed(root, monkeypatch) == ["fold0", "fold1", "foldfull"]
    assert parsed(root, monkeypatch) == []


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_stands_in_its_place_is_left_alone(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (os.mkfifo if kind == "pipe" else os.mkdir)(root / CACHE_FILE)
    assert parsed(root, monkeypatch) == ["fold0", "fold1", "foldfull"]


def test_a_folder_that_cannot_be_written_gets_none(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(row_cache, "write_whole", full)
    assert parsed(root, monkeypatch) == parsed(root, monkeypatch) == ["fold0", "fold1", "foldfull"]
    assert not (root / CACHE_FILE).exists()


def test_few_rows_are_not_worth_a_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(file.stat().st_size for file in root.rglob(ROW_FILE))
    monkeypatch.setattr(row_cache, "WORTH_CACHING", size + 1)
    collect([root], cache=True)
    assert not (root / CACHE_FILE).exists()
    monkeypatch.setattr(row_cache, "WORTH_CACHING", size)
    collect([root], cache=True)
    assert (root / CACHE_FILE).exists()


AT_ONCE = """
import sys
from dgbench.reports.reading import row_cache
from dgbench.reports.reading.collect import collect
row_cache.WORTH_CACHING, row_cache._version = 1, lambda: sys.argv[2]
for _ in range(20):
    found = collect([sys.argv[1]], cache=True)
    print(len(found.runs), len(found.rows))
"""


def test_reports_at_the_same_time(root: Path) -> None:
    """Three processes of two versions replace the file of one another."""
    plain = collect([root])
    words = [sys.executable, "-c", AT_ONCE, str(root)]
    started = [
        subprocess.Popen([*words, version], stdout=subprocess.PIPE, text=True)
        for version in ("a", "b", "a")
    ]
    for process in started:
        told, _ = process.communicate(timeout=60)
        assert (process.returncode, set(told.splitlines())) == (
            0,
            {f"{len(plain.runs)} {len(plain.rows)}"},
        )
    assert [file.name for file in root.iterdir() if file.name.startswith(".")] == [CACHE_FILE]

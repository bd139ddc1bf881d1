"""Rows of many runs in one file."""

from __future__ import annotations

import json
import lzma
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dgbench.errors import RecordError
from dgbench.reports.reading.collect import collect
from tests.complaints import one_line
from tools.archive.packed_runs import packed_runs, write_packed

ROOT = Path(__file__).resolve().parents[2]


def pack(file: Path, folder: Path) -> None:
    write_packed(packed_runs(collect([folder])), file)


def _runs(make: Any, folder: Path) -> Path:
    for seed in (0, 1):
        make.write_run(folder / str(seed), make.identity(seed=seed), lambda env, step: 0.25)
    return folder


def test_an_archive_gives_what_the_folders_gave(make: Any, tmp_path: Path) -> None:
    """Of a folder it keeps the last two parts: where it lay on a machine is nobody's concern."""
    folder, file = _runs(make, tmp_path / "runs"), tmp_path / "rows.jsonl.xz"
    pack(file, folder)
    before, after = collect([folder]), collect([file])
    relative = ["/".join(Path(run.folder).parts[-2:]) for run in before.runs]
    assert after.runs == [
        replace(run, folder=name) for run, name in zip(before.runs, relative, strict=True)
    ]
    pd.testing.assert_frame_equal(after.rows, before.rows)
    assert after.problems == []


def test_archive_and_folders_mix_and_the_same_run_counts_once(make: Any, tmp_path: Path) -> None:
    folder, file = _runs(make, tmp_path / "runs"), tmp_path / "rows.jsonl.xz"
    pack(file, folder)
    make.write_run(tmp_path / "new", make.identity(seed=2), lambda env, step: 0.5)
    found = collect([file, folder / "0", tmp_path / "new"])
    assert [run.identity["seed"] for run in found.runs] == [0, 1, 2]
    assert [problem.kind for problem in found.problems] == ["duplicate"]


def test_a_folder_of_archives_is_read_like_its_files(make: Any, tmp_path: Path) -> None:
    folder, shelf = _runs(make, tmp_path / "runs"), tmp_path / "shelf"
    shelf.mkdir()
    for seed in ("0", "1"):
        pack(shelf / f"{seed}.jsonl.xz", folder / seed)
    (shelf / "README.md").write_text("no archive")
    assert [run.identity for run in collect([shelf]).runs] == [
        run.identity for run in collect([folder]).runs
    ]


def test_keys_that_are_younger_than_an_archive_get_their_defaults(
    make: Any, tmp_path: Path
) -> None:
    folder, file = _runs(make, tmp_path / "runs"), tmp_path / "rows.jsonl.xz"
    pack(file, folder)
    with lzma.open(file, "rt") as handle:
        lines = [json.loads(line) for line in handle]
    for line in lines:
        del line["run"]["identity"]["averaging"]
    with lzma.open(file, "wt") as handle:
        handle.writelines(json.dumps(line) + "\n" for line in lines)
    assert {run.identity["averaging"] for run in collect([file]).runs} == {"none"}


def test_the_committed_archive_is_read() -> None:
    """It is older than `together` and `content`."""
    found = collect([ROOT / "results" / "hwang2024_table1_scale1_fixed_data" / "rows.jsonl.xz"])
    assert (len(found.runs), len(found.rows), found.problems) == (756, 19992, [])
    assert {run.status for run in found.runs} == {"DONE"}
    assert {run.together for run in found.runs} == {None}
    assert {run.identity["content"] for run in found.runs} == {""}
    number = next(
        number for number, run in enumerate(found.runs) if run.identity["run"] == "4c33bcf096ad"
    )
    rows = found.rows[(found.rows["run"] == number) & (found.rows["env"] == "0.80")]
    assert rows["wrong"].iloc[0] == 395.0


def test_how_many_trained_together_is_kept(make: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl.xz"
    make.write_run(tmp_path / "runs", make.identity(), together=5)
    pack(file, tmp_path / "runs")
    assert [run.together for run in collect([file]).runs] == [5]


@pytest.mark.parametrize(
    "content", [b"", b"no archive", lzma.compress(b"{"), lzma.compress(b'{"run": 1}\n')]
)
def test_what_is_no_archive_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rows.jsonl.xz"
    file.write_bytes(content)
    with pytest.raises(RecordError, match=r"rows\.jsonl\.xz is no whole archive|no runs under"):
        collect([file])


@pytest.mark.thorough
@pytest.mark.parametrize("kept", [-20, 0.5])
def test_of_a_cut_archive_the_runs_before_the_cut_are_used(
    make: Any, tmp_path: Path, kept: float
) -> None:
    """Without its end, where all runs are whole; and cut within a later one of runs that are hard
    to compress.
    """
    file = tmp_path / "rows.jsonl.xz"
    for seed in range(200):
        dice = random.Random(seed)
        make.write_run(
            tmp_path / "runs" / str(seed),
            make.identity(seed=seed),
            lambda e, s, dice=dice: dice.random(),
        )
    pack(file, tmp_path / "runs")
    content = file.read_bytes()
    file.write_bytes(content[:-20] if kept == -20 else content[: int(kept * len(content))])
    found = collect([file])
    assert len(found.runs) == 200 if kept == -20 else 20 < len(found.runs) < 180
    cut = found.problems[-1]
    assert (cut.kind, cut.where) == ("cut archive", str(file))
    one_line(cut.reason, f"its line {len(found.runs)} .*; copy the file again")


def rewrite(file: Path, change: Callable[[dict[str, Any]], object], line: int = 0) -> None:
    """Change one run of an archive."""
    with lzma.open(file, "rt") as handle:
        lines = [json.loads(text) for text in handle]
    change(lines[line])
    with lzma.open(file, "wt") as handle:
        handle.writelines(json.dumps(each) + "\n" for each in lines)


BAD: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda run: run["rows"]["wrong"].pop(), "has 15 values of wrong, row_count is 16"),
    (lambda run: run["rows"].pop("loss"), "lacks loss"),
    (lambda run: run["rows"].update(env="0.90"), "values.*env, row_count.*16"),
    (
        lambda run: run["rows"]["step"].__setitem__(3, 1e30),
        r"step.*1e\+30.*whole number.*0.*2147483647",
    ),
    (
        lambda run: run["rows"]["wrong"].__setitem__(3, 1001),
        "counts more.*wrong.*seen.*fewer.*none",
    ),
    (lambda run: run["rows"]["env"].__setitem__(1, "0.90"), "has 1 rows twice"),
    (lambda run: run.pop("rows"), r"JSON object.*run, identity.*rows \(half-written\?\)"),
    (lambda run: run["run"].pop("status"), "lacks status"),
    (lambda run: run["run"].update(status="OK"), 'status is "OK", no status'),
    (lambda run: run["run"].update(last_step=300), "last_step.*300.*last row.*step 200"),
    (lambda run: run["run"].update(row_count=None), "row_count.*null.*whole number.*0.*2147483647"),
    (lambda run: run["run"]["identity"].pop("given"), "lacks given"),
    (lambda run: run["run"]["identity"].update(hparams=[1]), r"hparams is \[1\], not a mapping"),
    (lambda run: run["run"].update(identity=[]), "lacks a mapping"),
]


@pytest.mark.parametrize(("change", "said"), BAD, ids=[said for _, said in BAD])
def test_a_bad_run_is_named_by_its_line_and_left_out(
    make: Any, tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    file = tmp_path / "rows.jsonl.xz"
    pack(file, _runs(make, tmp_path / "runs"))
    rewrite(file, change, 1)
    found = collect([file])
    assert [run.identity["seed"] for run in found.runs] == [0] and len(found.rows) == 16
    (problem,) = found.problems
    assert (problem.kind, problem.where) == ("bad run in archive", f"{file}:2")
    one_line(problem.reason, said)
    rewrite(file, change)
    with pytest.raises(RecordError, match=r"rows\.jsonl\.xz.*whole archive.*runs \(2 lines.*first"):
        collect([file])


def test_of_several_archives_a_broken_one_is_named(make: Any, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    pack(shelf / "good.jsonl.xz", _runs(make, tmp_path / "runs"))
    (shelf / "bad.jsonl.xz").write_text("no archive")
    os.mkfifo(shelf / "pipe.jsonl.xz")
    (shelf / "folder.jsonl.xz").mkdir()
    found = collect([shelf])
    assert len(found.runs) == 2
    assert [(problem.kind, Path(problem.where).name) for problem in found.problems] == [
        ("unreadable archive", name)
        for name in ("bad.jsonl.xz", "folder.jsonl.xz", "pipe.jsonl.xz")
    ]


def test_a_split_for_every_seed_is_read_again(make: Any, tmp_path: Path) -> None:
    """An archive says `by seed`, where rows have a number."""
    file = tmp_path / "rows.jsonl.xz"
    for seed in (0, 1):
        make.write_run(tmp_path / "runs" / str(seed), make.identity(seed=seed, split_seed=seed))
    pack(file, tmp_path / "runs")
    found = collect([file])
    assert {run.identity["split_seed"] for run in found.runs} == {
        "by seed"
    } and found.problems == []

"""One account of what is missing: selection and evaluation read no file, the report's account
does.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.analysis.selection import Last
from dgbench.records.rows import IDENTITY_FILE
from dgbench.reports.evaluation import evaluate
from dgbench.reports.missing import fold_ranges
from dgbench.reports.ranking.leaderboards import leaderboards
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs

_opened: list[str] = []
_watching: list[Path] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    is_watched = _watching and event in ("open", "os.listdir", "os.scandir")
    if is_watched and str(arguments[0]).startswith(str(_watching[0])):
        _opened.append(str(arguments[0]))


sys.addaudithook(_watch)  # there is no way to take it away again


@contextmanager
def opened_in(folder: Path) -> Iterator[list[str]]:
    """List the files and folders below a folder that are opened inside."""
    _opened.clear()
    _watching.append(folder)
    try:
        yield _opened
    finally:
        _watching.clear()


def lacking(study: Path) -> None:
    """Leave one run out, and let another stop before its first row."""
    shutil.rmtree(study / "erm_seed0_fold0")
    stopped = study / "erm_seed0_fold1"
    (stopped / "errors.jsonl").unlink()
    (stopped / "config.yaml").write_text("fold: {name: '1'}\n")
    (stopped / "status").write_text("FAILED out of luck\n")
    for run in study.rglob("errors.jsonl"):
        (run.parent / IDENTITY_FILE).write_text(
            '{"sessions": [{"command": ["train.py", "algorithm=erm"], "typed": []}]}'
        )


def test_evaluation_reads_no_file(small_study: Path) -> None:
    lacking(small_study)
    with opened_in(small_study) as read:
        collection = collect([small_study])
    assert read, "the watch sees what is opened"
    with opened_in(small_study) as read:
        evaluation = evaluate(select_runs(collection, Last()))
    assert not read
    assert "fold 1: failed: out of luck; fold 0: no rows" in [*evaluation.studies["missing"]]
    with opened_in(small_study) as read:
        problems = evaluation.problems
    assert any(name.endswith(IDENTITY_FILE) for name in read)
    assert [problem for problem in problems if "To fill: python train.py" in problem.reason]


def test_folders_that_are_gone_change_no_number(small_study: Path, tmp_path: Path) -> None:
    lacking(small_study)
    collection = collect([small_study])
    before = evaluate(select_runs(collection, Last()))
    shutil.rmtree(small_study)
    after = evaluate(select_runs(collection, Last()))
    pd.testing.assert_frame_equal(before.studies, after.studies)
    pd.testing.assert_frame_equal(before.errors, after.errors)
    assert after.studies["missing"].str.contains("failed: out of luck").any()


def test_measures_and_leaderboard_fill_by_the_same_command(small_study: Path) -> None:
    lacking(small_study)
    selected = select_runs(collect([small_study]), Last())
    measures = {problem.reason.partition("To fill: ")[2] for problem in evaluate(selected).problems}
    ranked = {problem.reason.partition("To fill: ")[2] for problem in leaderboards(selected)[1]}
    commands = {text for text in measures if text}
    assert commands and ranked & commands


def test_folds_as_ranges() -> None:
    assert fold_ranges(["5", "0", "full", "2", "1"]) == "0-2, 5, full"
    assert fold_ranges(["3", "1"]) == "1, 3"
    assert fold_ranges([]) == ""

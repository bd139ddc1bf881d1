"""What a sweep on this machine says while none of its jobs ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgbench.records.status import DONE, INTERRUPTED, RUNNING, Beat, write_beat, write_status
from dgbench.sweeps import progress
from dgbench.sweeps.progress import SweepProgress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the clock shows, which a test moves."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def study(folder: Path, name: str, *words: str) -> None:
    """A study of four models of which some have a status."""
    runs = [f"fold-{n}" for n in range(4)]
    (folder / name).mkdir(parents=True)
    for run, word in zip(runs, words, strict=False):
        (folder / name / run).mkdir()
        write_status(folder / name / run, word)


def test_a_line_a_minute_says_models_and_time_left(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two jobs lack seven models and another's was done before.

    After 60 s, 2.5: then 4.5 are left, at 24 s each.
    """
    study(tmp_path, "before", DONE)
    shown = SweepProgress(2, [{tmp_path / "before": 3}, {tmp_path / "now": 4}])
    clock[0] += 30
    shown.look()
    assert capsys.readouterr().err == ""
    study(tmp_path, "now", DONE, DONE, RUNNING)
    write_beat(tmp_path / "now" / "fold-2", Beat(step=50, steps=100, steps_per_s=1.0))
    clock[0] += 30
    shown.look()
    assert capsys.readouterr().err == "[0/2] 2 of 7 models done, about 2 min left\n"
    shown.look()
    shown.end_job(1, "seed=0: done")
    assert capsys.readouterr().err == "[1/2, 2/7 models, about 2 min left] seed=0: done\n"


def test_models_of_another_command_in_the_folder_are_not_counted(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """All sweeps train into the folder ``multirun`` where none is named."""
    shown = SweepProgress(1, [{tmp_path / "own": 4}])
    study(tmp_path, "other", DONE, DONE)
    study(tmp_path, "own", DONE)
    clock[0] += 60
    shown.look()
    assert capsys.readouterr().err == "[0/1] 1 of 4 models done, about 3 min left\n"


def test_the_end_of_a_job_tells_models_where_they_are_counted_else_jobs(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """A job of one model is done after 60 s: three of its size are left, or the other job."""
    counted = SweepProgress(2, [{tmp_path / "now": 1}, {tmp_path / "later": 3}])
    uncounted = SweepProgress(2)
    study(tmp_path, "now", DONE)
    clock[0] += 60
    for shown in (counted, uncounted):
        shown.end_job(0, "seed=0: done")
    assert capsys.readouterr().err.splitlines() == [
        "[1/2, 1/4 models, about 3 min left] seed=0: done",
        "[1/2, about 60 s left] seed=0: done",
    ]
    study(tmp_path, "later", DONE, DONE, DONE)
    counted.end_job(1, "seed=1: done")
    assert capsys.readouterr().err == "[2/2] seed=1: done\n"


def test_what_was_trained_before_is_no_pace_of_this_command(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two models stopped at 80 of 100 steps are at 90 after 60 s: 5 min a model, of which a fifth
    is left.
    """
    study(tmp_path, "resumed", INTERRUPTED, INTERRUPTED)
    folders = [tmp_path / "resumed" / f"fold-{n}" for n in range(2)]
    for folder in folders:
        write_beat(folder, Beat(step=80, steps=100, steps_per_s=1.0))
    shown = SweepProgress(1, [{tmp_path / "resumed": 2}])
    for folder in folders:
        write_status(folder, RUNNING)
        write_beat(folder, Beat(step=90, steps=100, steps_per_s=1.0))
    clock[0] += 60
    shown.look()
    assert capsys.readouterr().err == "[0/1] 0 of 2 models done, about 60 s left\n"


def test_each_end_counts_the_models_of_its_own_job(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when the models of all jobs were counted less than five seconds ago."""
    folders = [tmp_path / f"seed-{n}" for n in range(3)]
    shown = SweepProgress(3, [{folder: 2} for folder in folders])
    for n, folder in enumerate(folders[:2]):
        clock[0] += 1
        study(tmp_path, folder.name, DONE, DONE)
        shown.end_job(n, "done")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(", ")[1] for line in lines] == ["2/6 models", "4/6 models"]


def test_the_ends_of_many_short_jobs_share_a_count_of_all_models(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 99 studies the end of a job reads its own alone, and all of them every five seconds."""
    folders = [tmp_path / f"seed-{n}" for n in range(99)]
    shown = SweepProgress(99, [{folder: 1} for folder in folders])
    read: list[Path] = []
    counted = progress._trained_in

    def count(folder: Path) -> progress.Trained:
        read.append(folder)
        return counted(folder)

    monkeypatch.setattr(progress, "_trained_in", count)
    for n, seconds in enumerate((1, 1, 4, 1, 1)):
        clock[0] += seconds
        shown.end_job(n, "done")
    assert len(read) == 5 + 99

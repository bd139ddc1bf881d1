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
    shown = SweepProgress(2, {tmp_path / "before": 3, tmp_path / "now": 4})
    clock[0] += 30
    shown.look()
    assert capsys.readouterr().err == ""
    study(tmp_path, "now", DONE, DONE, RUNNING)
    write_beat(tmp_path / "now" / "fold-2", Beat(step=50, steps=100, steps_per_s=1.0))
    clock[0] += 30
    shown.look()
    assert capsys.readouterr().err == "[0/2] 2 of 7 models done, about 2 min left\n"
    shown.look()
    shown.end_job("seed=0: done")
    assert capsys.readouterr().err == "[1/2, 2/7 models, about 2 min left] seed=0: done\n"


def test_models_of_another_command_in_the_folder_are_not_counted(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """All sweeps train into the folder ``multirun`` where none is named."""
    shown = SweepProgress(1, {tmp_path / "own": 4})
    study(tmp_path, "other", DONE, DONE)
    study(tmp_path, "own", DONE)
    clock[0] += 60
    shown.look()
    assert capsys.readouterr().err == "[0/1] 1 of 4 models done, about 3 min left\n"


def test_the_end_of_a_job_tells_models_where_they_are_counted_else_jobs(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """A job of one model is done after 60 s: three of its size are left, or the other job."""
    counted, uncounted = (
        SweepProgress(2, {tmp_path / "now": 1, tmp_path / "later": 3}),
        SweepProgress(2, {}),
    )
    study(tmp_path, "now", DONE)
    clock[0] += 60
    for shown in (counted, uncounted):
        shown.end_job("seed=0: done")
    assert capsys.readouterr().err.splitlines() == [
        "[1/2, 1/4 models, about 3 min left] seed=0: done",
        "[1/2, about 60 s left] seed=0: done",
    ]
    study(tmp_path, "later", DONE, DONE, DONE)
    counted.end_job("seed=1: done")
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
    shown = SweepProgress(1, {tmp_path / "resumed": 2})
    for folder in folders:
        write_status(folder, RUNNING)
        write_beat(folder, Beat(step=90, steps=100, steps_per_s=1.0))
    clock[0] += 60
    shown.look()
    assert capsys.readouterr().err == "[0/1] 0 of 2 models done, about 60 s left\n"


def test_the_ends_of_many_short_jobs_share_a_count_of_models(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, counts = SweepProgress(9, {tmp_path: 9}), []
    monkeypatch.setattr(SweepProgress, "_count", lambda self: counts.append(clock[0]) or (0, 0.0))
    for seconds in (1, 1, 4, 1, 1):
        clock[0] += seconds
        shown.end_job("done")
    assert counts == [1006.0]

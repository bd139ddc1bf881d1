"""Signs of life: what is written is read back, and what is torn is none."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from dgbench.records.status import Beat, read_beat, write_beat


def test_round_trip(tmp_path: Path) -> None:
    before = time.time()
    beat = Beat(step=40, steps=100, steps_per_s=2.5, runs=3)
    write_beat(tmp_path, beat)
    assert read_beat(tmp_path) == beat
    assert (beat.pid, beat.host) == (os.getpid(), socket.gethostname())
    assert before - 0.1 <= beat.time <= time.time() + 0.1
    assert beat.seconds_left == 24.0
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_a_speed_that_is_not_known_yet(tmp_path: Path) -> None:
    write_beat(tmp_path, Beat(step=0, steps=100, steps_per_s=None))
    found = read_beat(tmp_path)
    assert found is not None and found.steps_per_s is None and found.seconds_left is None


@pytest.mark.parametrize(
    "odd",
    [
        {"step": 3}, {"step": -1}, {"steps": 1e999}, {"time": 1e999}, {"time": float("nan")},
        {"pid": 0},
        {"pid": 10**12}, {"steps_per_s": -1.0}, {"steps_per_s": 1e-320},
        {"steps_per_s": float("nan")}, {"runs": 0},
        {"host": "a\nb"},
    ],
)  # fmt: skip
def test_a_beat_that_no_run_can_have_is_none(tmp_path: Path, odd: dict[str, object]) -> None:
    """It would be judged by, counted with, or printed."""
    file = tmp_path / "progress.json"
    file.write_text(json.dumps(WHOLE))
    assert read_beat(tmp_path) == Beat(**WHOLE)  # type: ignore[arg-type]
    file.write_text(json.dumps({**WHOLE, **odd}))
    assert read_beat(tmp_path) is None


def test_a_beat_that_is_a_pipe_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "progress.json")
    assert read_beat(tmp_path) is None


def test_a_beat_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fsync")
    write_beat(tmp_path, Beat(step=0, steps=100, steps_per_s=None))


WHOLE = {"step": 1, "steps": 2, "steps_per_s": 1.0, "time": 5.0, "pid": 7, "host": "here"}


def test_keys_that_are_not_ours_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_text(json.dumps({**WHOLE, "more": 1}))
    assert read_beat(tmp_path) == Beat(**WHOLE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"step": 1}', json.dumps({**WHOLE, "step": "x"})]
)
def test_a_torn_beat_is_none(tmp_path: Path, text: str) -> None:
    assert read_beat(tmp_path) is None
    (tmp_path / "progress.json").write_text(text)
    assert read_beat(tmp_path) is None

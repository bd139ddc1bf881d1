"""Signs of life: how far a run is, in the folders of all runs that train together."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dgbench.callbacks import progress as heartbeat
from dgbench.callbacks.progress import Heartbeat


def beat_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "progress.json").read_text())
    return found


def test_every_run_of_a_stack_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It resumes at step 100; 60 steps in 12 s are 5 a second.

    A beat within 5 s of the last is left out.
    """
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: clock.now)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    beats, module = Heartbeat(folders, 500), SimpleNamespace(steps_done=100)
    before = time.time()
    beats.on_train_start(None, module)
    for folder in folders:
        first = beat_of(folder)
        assert {key: first[key] for key in ("step", "steps", "steps_per_s", "runs")} == {
            "step": 100, "steps": 500, "steps_per_s": None, "runs": 2,
        }  # fmt: skip
        assert (first["pid"], first["host"]) == (os.getpid(), socket.gethostname())
        assert before - 0.1 <= first["time"] <= time.time() + 0.1
    clock.now, module.steps_done = 1004.0, 120
    beats.on_train_batch_end(None, module, None, None, 0)
    assert beat_of(folders[0])["step"] == 100
    clock.now, module.steps_done = 1012.0, 160
    beats.on_validation_batch_end(None, module, None, None, 0)
    assert [(beat_of(folder)["step"], beat_of(folder)["steps_per_s"]) for folder in folders] == [
        (160, 5.0)
    ] * 2
    clock.now, module.steps_done = 1013.0, 500
    beats.on_train_end(None, module)
    assert beat_of(folders[1])["step"] == 500
    assert sorted(path.name for path in folders[0].iterdir()) == ["progress.json"]


def test_a_full_disk_stops_no_training(tmp_path: Path) -> None:
    Heartbeat([tmp_path / "absent"], 5).on_train_start(None, SimpleNamespace(steps_done=0))

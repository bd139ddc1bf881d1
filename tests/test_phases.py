"""What takes long says what it does, how far it is and how long the rest takes; what is quick says
nothing.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from dgbench import phases
from dgbench.data.datasets.file_tree import images_below
from dgbench.phases import Phase, phase, tracked
from dgbench.reports.reading.collect import collect


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(tracked([1, 2], "counting", 2, "numbers")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_each_line_says_what_how_far_and_how_long(
    at_once: None, capsys: pytest.CaptureFixture[str]
) -> None:
    list(tracked(range(3), "counting", 3, "numbers"))
    lines = [
        line
        for line in capsys.readouterr().err.splitlines()
        if not line.startswith("counting: 0 of")
    ]
    assert [line.partition(", ")[0] for line in lines] == [
        f"counting: {n} of 3 numbers" for n in (1, 2, 3)
    ]
    assert lines[0].endswith(" left") and "left" not in lines[-1]


def test_one_unit_that_takes_long_is_named_before_it_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(phases, "QUIET_SECONDS", 0.01)
    said = threading.Event()
    say = Phase._say

    def told(self: Phase, now: float) -> None:
        say(self, now)
        said.set()

    monkeypatch.setattr(Phase, "_say", told)
    with phase("drawing", 1, "figures"):
        assert said.wait(30)
    assert capsys.readouterr().err == "drawing: 0 of 1 figures\n"


def test_a_search_of_files_and_of_runs_and_their_reading(
    at_once: None, tmp_path: Path, image_tree: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    root = image_tree(a={"cat": 3, "dog": 2})
    assert len(list(images_below(root))) == 5
    assert f"listing the images in {root}: 5 images" in capsys.readouterr().err
    run = tmp_path / "runs" / "study" / "fold-0-x"
    run.mkdir(parents=True)
    (run / "status").write_text("RUNNING\n")
    collect([tmp_path / "runs"])
    said = capsys.readouterr().err
    assert (
        f"searching {tmp_path / 'runs'}: 3 folders" in said
        and "reading runs: 1 of 1 folders" in said
    )

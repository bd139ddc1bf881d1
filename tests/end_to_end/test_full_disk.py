"""A disk that fills up while a study trains: it says so, keeps what is whole, and goes on when there is space again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dgbench.callbacks.status import mark_failed, read_status, write_status
from dgbench.records import read_rows


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path, left: int) -> Path:
    """Take all space but ``left`` bytes."""
    space = os.statvfs(disk)
    file = disk / "fill"
    file.write_bytes(bytes(space.f_bavail * space.f_frsize - left))
    return file


def test_a_full_disk_loses_nothing_that_was_written(
    train: Any, rows_of: Callable[[Path], dict[str, bytes]], disk: Path, tmp_path: Path
) -> None:
    """Room for fold 0 and a part of fold 1, whose rows and checkpoints do not fit any more."""
    words = ("protocol.folds=[0,1]", "trainer.steps=40")
    whole = tmp_path / "whole"
    whole.mkdir()
    assert train(*words, cwd=whole).code == 0
    room = fill(disk, 190_000)
    ended = train(*words, cwd=disk)
    assert ended.code == 1
    assert len(ended.complaints) == 1 and "Traceback" not in ended.err
    marks = {path.name.split("-")[1]: read_status(path) for path in disk.glob("outputs/*/fold-*")}
    assert "DONE" in marks.values() or "FAILED" in str(marks), marks
    assert any("No space left" in mark for mark in marks.values()), marks
    for file in disk.rglob("errors.jsonl"):
        assert len(read_rows(file)[1]) <= 1, "at most the last line is torn"
    room.unlink()
    again = train(*words, cwd=disk)
    assert again.code == 0, again.err
    assert rows_of(disk) == rows_of(whole)


def test_a_disk_without_a_free_block_takes_the_mark(disk: Path) -> None:
    run = disk / "run"
    run.mkdir()
    write_status(run, "RUNNING")
    fill(disk, 0)
    with pytest.raises(OSError, match="No space left"):
        write_status(run, "DONE")
    assert read_status(run) == "RUNNING"
    mark_failed(run, "OSError: No space\nleft")
    assert read_status(run) == "FAILED OSError: No space left"
    assert [path.name for path in run.iterdir()] == ["status"]

"""A disk that fills up while a study trains: it says so, keeps what is whole, and continues once
there is space.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.rows import read_rows
from dgbench.records.status import Status, mark_failed, read_status, write_status


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True
    )
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


@pytest.mark.thorough
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
    statuses = {
        path.name.split("-")[1]: str(read_status(path)) for path in disk.glob("outputs/*/fold-*")
    }
    assert "DONE" in statuses.values() or "FAILED" in str(statuses), statuses
    assert any("No space left" in status for status in statuses.values()), statuses
    for file in disk.rglob("errors.jsonl"):
        assert len(read_rows(file)[1]) <= 1, "at most the last line is torn"
    room.unlink()
    again = train(*words, cwd=disk)
    assert again.code == 0, again.err
    assert rows_of(disk) == rows_of(whole)


def test_a_disk_without_a_free_block_takes_the_status(disk: Path) -> None:
    run = disk / "run"
    run.mkdir()
    write_status(run, "RUNNING")
    fill(disk, 0)
    with pytest.raises(OSError, match="No space left"):
        write_status(run, "DONE")
    assert read_status(run).word == "RUNNING"
    mark_failed(run, "OSError: No space\nleft")
    assert read_status(run) == Status("FAILED", "OSError: No space left")
    assert [path.name for path in run.iterdir()] == ["status"]


def test_a_disk_that_fills_while_a_stack_is_marked_done(train: Any, disk: Path) -> None:
    """No block is free any more when the first run of three is marked: all are FAILED, and the
    command sums up.
    """
    words = ("protocol.folds=[0,1,2]", "execution=stacked")
    fill_up = (
        "import os\n"
        "from dgbench.training import train_runs\n"
        "finish = train_runs.finish\n"
        "def full(folder, *how):\n"
        "    if not os.path.exists('fill'):\n"
        "        with open('fill', 'wb', buffering=0) as file:\n"
        "            try:\n"
        "                while file.write(bytes(4096)):\n"
        "                    pass\n"
        "            except OSError:\n"
        "                pass\n"
        "    return finish(folder, *how)\n"
        "train_runs.finish = full\n"
    )
    ended = train(*words, cwd=disk, before=fill_up)
    assert ended.code == 1
    assert (
        len(ended.complaints) == 1
        and "failed" in ended.complaints[0]
        and "Traceback" not in ended.err
    )
    statuses = [read_status(path) for path in disk.glob("outputs/*/fold-*")]
    assert [status.word for status in statuses] == ["FAILED"] * 3
    assert all("No space left" in status.reason for status in statuses)
    (disk / "fill").unlink()
    again = train(*words, cwd=disk)
    assert again.code == 0, again.err
    assert [read_status(path).word for path in disk.glob("outputs/*/fold-*")] == ["DONE"] * 3

"""The status of a run: one line, whole or not at all, and DONE only with rows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dgbench.records import files
from dgbench.records.rows import ROW_FILE, SHIFT_FILE
from dgbench.records.status import (
    Status,
    finish,
    is_done,
    lacking_rows,
    mark_failed,
    mark_interrupted,
    read_status,
    write_status,
)
from tests.rows import ROW, WHOLE


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (("DONE",), Status("DONE")),
        (("RUNNING\n",), Status("RUNNING")),
        (("INTERRUPTED",), Status("INTERRUPTED")),
        (("FAILED", "loss\n became  nan\n"), Status("FAILED", "loss became nan")),
        (("FAILED loss became nan",), Status("FAILED", "loss became nan")),
    ],
)
def test_a_status_is_one_line(tmp_path: Path, written: tuple[str, ...], read: Status) -> None:
    write_status(tmp_path, "RUNNING")
    write_status(tmp_path, *written)
    assert (tmp_path / "status").read_text() == f"{read}\n"
    assert read_status(tmp_path) == read
    assert [p.name for p in tmp_path.iterdir()] == ["status"]


@pytest.mark.parametrize("content", ["", "DONEZO", "done", "\0\0\0"])
def test_a_file_that_says_something_else(tmp_path: Path, content: str) -> None:
    """A file that a power cut emptied is no status, and its content is told."""
    (tmp_path / "status").write_text(content)
    assert read_status(tmp_path) == Status("", f"status file says {content!r}")


def test_no_status(tmp_path: Path) -> None:
    assert read_status(tmp_path) == Status()
    assert read_status(tmp_path / "nowhere") == Status()


@pytest.mark.parametrize(
    ("word", "rows", "done"),
    [
        ("DONE", WHOLE, True),
        ("DONE", f"{replace(ROW, step=50).to_json()}\n", False),
        ("DONE", "{}\n", False),
        ("DONE", "", False),
        ("DONE", None, False),
        ("FAILED", WHOLE, False),
    ],
)
def test_done_without_rows_is_not_done(
    tmp_path: Path, word: str, rows: str | None, done: bool
) -> None:
    write_status(tmp_path, word)
    if rows is not None:
        (tmp_path / ROW_FILE).write_text(rows)
    assert is_done(tmp_path) is done
    assert (lacking_rows(tmp_path) == "") is (done or word == "FAILED")


def test_a_whole_environment_is_missed_though_nothing_else_says_what_was_evaluated(
    tmp_path: Path,
) -> None:
    """Rows of the last step alone, without ``identity.json``: the number of rows in the status is
    all that is left.
    """
    lines = [replace(ROW, env=env).to_json() for env in ("a", "b", "c")]
    (tmp_path / ROW_FILE).write_text("\n".join(lines) + "\n")
    assert finish(tmp_path, step=ROW.step).rows == read_status(tmp_path).rows == 3
    assert read_status(tmp_path).last_step == ROW.step
    assert is_done(tmp_path)
    (tmp_path / ROW_FILE).write_text("\n".join(lines[1:]) + "\n")
    assert lacking_rows(tmp_path).startswith("1 of its 3 rows")


def test_estimates_of_shift_are_done_where_there_are_any(tmp_path: Path) -> None:
    write_status(tmp_path, "DONE")
    (tmp_path / SHIFT_FILE).touch()
    assert not is_done(tmp_path)
    (tmp_path / SHIFT_FILE).write_text("{}\n")
    assert is_done(tmp_path)


def test_a_status_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between writing the new status and naming it."""
    write_status(tmp_path, "RUNNING")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        write_status(tmp_path, "DONE")
    assert read_status(tmp_path).word == "RUNNING"


def test_what_a_power_cut_must_not_take_away_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(files.os, "fsync", synced.append)
    write_status(tmp_path, "RUNNING")
    assert synced == []
    write_status(tmp_path, "DONE")
    assert len(synced) == 2, "the file and its folder"


@pytest.mark.parametrize("word", ["RUNNING", "DONE", "FAILED"])
def test_only_what_runs_is_interrupted(tmp_path: Path, word: str) -> None:
    write_status(tmp_path, word)
    mark_interrupted(tmp_path)
    assert read_status(tmp_path).word == ("INTERRUPTED" if word == "RUNNING" else word)
    mark_interrupted(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_the_end_of_a_run(tmp_path: Path) -> None:
    assert finish(tmp_path) == read_status(tmp_path) == Status("DONE")
    assert (
        finish(tmp_path, "loss\nbecame nan")
        == read_status(tmp_path)
        == Status("FAILED", "loss became nan")
    )


def test_done_that_does_not_fit_on_the_disk_is_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No new file can be written; the one that is there is overwritten in place, and shorter text
    leaves no rest.
    """
    write_status(
        tmp_path,
        "FAILED",
        "a long reason of an earlier attempt, longer than the one that comes now",
    )

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    failed = Status("FAILED", "OSError: [Errno 28] No space left on device")
    assert finish(tmp_path) == failed
    assert read_status(tmp_path) == failed
    mark_failed(tmp_path / "absent", "nothing to write to, and no error")

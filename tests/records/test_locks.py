"""Locks: one process trains a run, and its end, however it comes, frees what it held."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import pytest

from dgbench.records.locks import (
    LOCK_FILE,
    RunLocks,
    exclusive,
    is_locked,
    lock_holder,
    try_exclusive,
)

FILES = 32  #: that a process may have open here
HOLD = f"""
import resource, sys, time
from pathlib import Path
from dgbench.records.locks import RunLocks
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
claims = RunLocks()
print([claims.take(Path(name)) for name in sys.argv[1:]], flush=True)
time.sleep(600)
"""

# Takes and frees three runs, in any order, again and again; a file says who is inside, and nobody
# may find another.
CONTEND = """
import os, random, sys, time
from contextlib import ExitStack
from pathlib import Path
from dgbench.records.locks import RunLocks, exclusive, is_locked
folder, turns, chance = Path(sys.argv[1]), 0, random.Random(os.getpid())
runs, together = [folder / name for name in "abc"], 0
deadline = time.monotonic() + 60
while turns < 200 and time.monotonic() < deadline:
    with RunLocks() as locks, ExitStack() as stack:
        taken = [run / "inside" for run in chance.sample(runs, 3) if locks.take(run)]
        for inside in taken:
            stack.enter_context(open(inside, "x"))
            assert is_locked(inside.parent)
        turns, together = turns + bool(taken), together + (len(taken) > 1)
        for inside in taken:
            inside.unlink()
    is_locked(chance.choice(runs))
for _ in range(10):
    with exclusive(folder / "alone.lock"):
        count = int((folder / "count").read_text())
        time.sleep(0.001)
        (folder / "count").write_text(str(count + 1))
print(turns * together)
"""


def holder(*folders: Path) -> tuple[subprocess.Popen[str], str]:
    words = [sys.executable, "-c", HOLD, *map(str, folders)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env={**os.environ, "SLURM_JOB_ID": "77"}
    )
    assert process.stdout
    return process, process.stdout.readline().strip()


def holder_says(*folders: Path) -> str:
    process, got = holder(*folders)
    process.kill()
    process.communicate()
    return got


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    other, got = holder(shared)
    try:
        assert got == "[True]"
        file = (shared / LOCK_FILE).stat().st_ino
        with RunLocks() as claims:
            assert [claims.take(mine), claims.take(shared)] == [True, False]
            assert lock_holder(shared) == f"{os.uname().nodename} process {other.pid} job 77"
            assert is_locked(mine) and is_locked(shared)
            assert lock_holder(shared) == f"{os.uname().nodename} process {other.pid} job 77", (
                "looking changes nothing"
            )
            assert holder_says(mine, shared) == "[False, False]"
        assert not is_locked(mine) and is_locked(shared)
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert not is_locked(shared)
    with RunLocks() as claims:
        assert claims.take(shared)
        assert lock_holder(shared).startswith(f"{os.uname().nodename} process {os.getpid()}")
        assert holder_says(shared) == "[False]"
    assert (shared / LOCK_FILE).stat().st_ino == file, (
        "one file, whoever holds it: a new one would lock out nobody"
    )
    assert holder_says(shared) == "[True]"


def test_processes_never_both_hold_a_lock(tmp_path: Path) -> None:
    """Three processes take and free three runs in a tight loop, and count under one lock that
    waits.
    """
    (tmp_path / "count").write_text("0")
    words = [sys.executable, "-c", CONTEND, str(tmp_path)]
    processes = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    ended = [process.communicate() for process in processes]
    assert [err for _, err in ended] == [""] * 3
    assert all(int(out) > 0 for out, _ in ended)
    assert (tmp_path / "count").read_text() == "30"


def test_one_process_holds_a_run_once(tmp_path: Path) -> None:
    """Two objects of one process exclude each other, in whatever thread."""
    taken = []
    with RunLocks() as claims, RunLocks() as others:
        assert claims.take(tmp_path)
        assert not others.take(tmp_path)
        thread = threading.Thread(target=lambda: taken.append(RunLocks().take(tmp_path)))
        thread.start()
        thread.join()
        assert taken == [False]
    with RunLocks() as others:
        assert others.take(tmp_path)


def test_more_runs_than_open_files(tmp_path: Path) -> None:
    """One process holds 300 runs with 32 open files, in two folders; its end frees them, and so
    does its context.
    """
    folders = [tmp_path / f"study-{i % 2}" / f"fold-{i}" for i in range(300)]
    (tmp_path / "study-1").mkdir()
    (tmp_path / "elsewhere").symlink_to(tmp_path / "study-1")
    folders[1] = tmp_path / "elsewhere" / "fold-1"
    other, got = holder(*folders)
    try:
        assert got == f"{[True] * 300}"
        assert all(map(is_locked, folders)) and is_locked(tmp_path / "study-1" / "fold-1")
        assert lock_holder(folders[299]) == f"{os.uname().nodename} process {other.pid} job 77"
        with RunLocks() as claims:
            assert not any(map(claims.take, folders))
            assert claims.take(tmp_path / "mine")
    finally:
        other.kill()
        other.communicate()
    assert not any(map(is_locked, folders))
    with RunLocks() as claims, RunLocks() as others:
        assert all(map(claims.take, reversed(folders)))
        assert not any(map(others.take, folders)) and all(map(is_locked, folders))
    with (
        RunLocks() as claims
    ):  # the same process again, which begins with the file that the others named
        assert claims.take(folders[299]) and not any(map(is_locked, folders[:299]))


def test_a_lock_whose_text_cannot_be_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk the files cannot name another one: they stay locked themselves."""
    full = OSError(28, "No space left on device")
    folders = [tmp_path / "a", tmp_path / "b"]
    with RunLocks() as claims:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", refusing(full))
            assert all(map(claims.take, folders))
        assert claims.take(tmp_path / "c")
        assert holder_says(*folders, tmp_path / "c") == "[False, False, False]"
    assert holder_says(*folders, tmp_path / "c") == "[True, True, True]"


def test_a_copied_or_foreign_lock_holds_nothing(tmp_path: Path) -> None:
    """Of a copied study, of an earlier version, or of no version at all."""
    with RunLocks() as claims:
        assert all(map(claims.take, [tmp_path / "study" / "fold-0", tmp_path / "study" / "fold-1"]))
        shutil.copytree(tmp_path / "study", tmp_path / "copy")
        assert not is_locked(tmp_path / "copy" / "fold-0") and not is_locked(
            tmp_path / "copy" / "fold-1"
        )
    (tmp_path / "target").write_bytes(b"")
    for text in (
        b"host process 7",
        b"a\nb\n../target",
        b"a\n\nlock",
        b"a\nb\n../fold-1/lock",
        b"a\nb\n\0",
        b"\xff\n\xff\n\xff",
        b"\n\n/",
    ):
        (tmp_path / "copy" / "fold-1" / LOCK_FILE).write_bytes(text)
        assert not is_locked(tmp_path / "copy" / "fold-1")
        with RunLocks() as claims:
            assert claims.take(tmp_path / "copy" / "fold-1")


def test_a_program_started_meanwhile_holds_nothing(tmp_path: Path) -> None:
    """What a training process starts (W&B's service, compilers) must not keep its runs locked."""
    with RunLocks() as claims:
        claims.take(tmp_path)
        child = subprocess.Popen(["sleep", "600"], close_fds=False)
    try:
        assert not is_locked(tmp_path)
    finally:
        child.kill()
        child.wait()


def test_a_child_by_fork_neither_frees_nor_keeps_a_lock(tmp_path: Path) -> None:
    """As loader processes are made: the end of the first child leaves the lock, the second does not
    outlive it.
    """
    code = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from dgbench.records.locks import RunLocks, is_locked\n"
        "folder = Path(sys.argv[1])\n"
        "with RunLocks() as claims:\n"
        "    assert claims.take(folder)\n"
        "    if os.fork() == 0:\n"
        "        sys.exit()\n"  # leaves the context, and so does the second
        "    os.wait()\n"
        "    print(is_locked(folder))\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        time.sleep(600)\n"
        "print(is_locked(folder))\n"
        "os.kill(child, 9)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert (ended.stdout.split(), ended.stderr) == (["True", "False"], "")


def test_nobody_holds_what_does_not_exist(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "no") and lock_holder(tmp_path / "no") == ""
    assert not (tmp_path / "no").exists()


def refusing(error: OSError) -> object:
    def refuse(*_: object) -> None:
        raise error

    return refuse


@pytest.mark.parametrize("number", [38, 95])
def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    refuse = refusing(OSError(number, os.strerror(number)))
    monkeypatch.setattr(filelock._unix.fcntl, "flock", refuse)
    with RunLocks() as claims:
        assert claims.take(tmp_path)
        assert not is_locked(tmp_path)
        with exclusive(tmp_path / "alone.lock"), try_exclusive(tmp_path / "alone.lock") as mine:
            assert mine
    assert f"has no locks ({os.strerror(number)}); start no second" in caplog.text
    assert (tmp_path / LOCK_FILE).exists()


def test_another_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filelock._unix.fcntl, "flock", refusing(OSError(5, "Input/output error")))
    with RunLocks() as claims, pytest.raises(OSError, match="Input/output"):
        claims.take(tmp_path)


def test_waiting_is_said_and_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    file, order = tmp_path / "x.lock", []

    def second() -> None:
        with exclusive(file, "waiting for the first"):
            order.append("second")

    with try_exclusive(file) as mine:
        assert mine
        with try_exclusive(file) as again:
            assert not again
        with try_exclusive(file) as again:
            assert not again, "a look that failed frees nothing"
        thread = threading.Thread(target=second)
        thread.start()
        while "waiting for the first" not in caplog.text:
            assert thread.is_alive()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]

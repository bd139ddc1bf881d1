"""Claims: one process trains a member, and its end, however it comes, frees what it held."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dgbench.callbacks.claims import CLAIM_FILE, Claims, claimant, is_claimed

HOLD = """
import sys, time
from pathlib import Path
from dgbench.callbacks.claims import Claims
claims = Claims()
print([claims.take(Path(name)) for name in sys.argv[1:]], flush=True)
time.sleep(600)
"""


def holder(*folders: Path) -> tuple[subprocess.Popen[str], str]:
    words = [sys.executable, "-c", HOLD, *map(str, folders)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "SLURM_JOB_ID": "77"})
    assert process.stdout
    return process, process.stdout.readline().strip()


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    mine, shared = tmp_path / "mine", tmp_path / "shared"
    other, got = holder(shared)
    try:
        assert got == "[True]"
        with Claims() as claims:
            assert [claims.take(mine), claims.take(shared)] == [True, False]
            assert claimant(shared) == f"{os.uname().nodename} process {other.pid} job 77"
            assert is_claimed(mine) and is_claimed(shared)
            assert holder_says(mine, shared) == "[False, False]"
        assert not is_claimed(mine) and is_claimed(shared)
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert not is_claimed(shared)
    with Claims() as claims:
        assert claims.take(shared)
        assert claimant(shared).startswith(f"{os.uname().nodename} process {os.getpid()}")


def holder_says(*folders: Path) -> str:
    process, got = holder(*folders)
    process.kill()
    process.communicate()
    return got


def test_a_program_started_meanwhile_holds_nothing(tmp_path: Path) -> None:
    """What a training process starts (W&B's service, compilers) must not keep its members claimed."""
    with Claims() as claims:
        claims.take(tmp_path)
        child = subprocess.Popen(["sleep", "600"], close_fds=False)
    try:
        assert not is_claimed(tmp_path)
    finally:
        child.kill()
        child.wait()


def test_nobody_claims_what_does_not_exist(tmp_path: Path) -> None:
    assert not is_claimed(tmp_path / "no") and claimant(tmp_path / "no") == ""
    assert not (tmp_path / "no").exists()


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("dgbench.callbacks.claims.fcntl.flock", refuse)
    with Claims() as claims:
        assert claims.take(tmp_path)
    assert "has no locks (Operation not supported); start no second command" in caplog.text
    assert (tmp_path / CLAIM_FILE).exists()

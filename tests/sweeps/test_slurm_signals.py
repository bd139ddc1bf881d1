"""What a cluster tells a job before its end interrupts the run at a checkpoint, and is no fault of
that run.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from dgbench.interruption import forget
from dgbench.sweeps.slurm import Batch
from dgbench.sweeps.submissions import Submissions
from dgbench.sweeps.work import SweepCommand

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)


class Signalled:
    """Stands for a command whose run is signalled once, and takes every error for one of its own.

    Args:
        signals: that reach it, one after the other.
        deaf: whether the run does not end at a checkpoint, as in a step that takes long.
    """

    def __init__(self, *signals: signal.Signals, deaf: bool = False) -> None:
        self.signals, self.deaf = list(signals), deaf
        self.begun = 0

    def run(self, words: Sequence[str], number: int) -> str | None:
        self.begun += 1
        if self.deaf:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            while self.signals:
                os.kill(os.getpid(), self.signals.pop(0))
            if self.deaf:
                signal.pause()
        except Exception as error:
            return f"the run failed: {error}"
        return None


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Leave the handlers of this process as they were."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    forget()


def ended_by(
    error: Exception | SystemExit | None, folder: Path, command: Signalled | None = None
) -> Any:
    """Run a job whose handler of the warning raises; what it wrote of its end."""

    def handler(number: int, frame: Any) -> None:
        if error is not None:
            raise error

    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.signal(signal.SIGUSR2, handler)
    command = command or Signalled(signal.SIGUSR2)
    Batch(cast(SweepCommand, command), {"key": ["seed=0"]}, folder, 1.0)()
    return Submissions(folder).result("7_1")


@pytest.fixture(autouse=True)
def job_of_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")


def test_a_run_goes_on_after_a_signal(tmp_path: Path) -> None:
    assert ended_by(None, tmp_path) == {}


@pytest.mark.parametrize(
    "error",
    [
        subprocess.CalledProcessError(1, "scontrol"),
        subprocess.TimeoutExpired("scontrol", 60),
        OSError("full"),
    ],
)
def test_a_job_that_slurm_did_not_requeue_is_lost(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not requeued"):
        ended_by(error, tmp_path)
    assert Submissions(tmp_path).result("7_1") is None


def test_what_submitit_gives_up_is_the_result(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="too many times"):
        ended_by(RuntimeError("timed out too many times"), tmp_path)
    assert Submissions(tmp_path).result("7_1") == "job 7_1: RuntimeError: timed out too many times"


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
@pytest.mark.parametrize(
    "deaf", [False, True], ids=["stops at a checkpoint", "does not stop in time"]
)
def test_a_warned_job_is_requeued(number: signal.Signals, deaf: bool, tmp_path: Path) -> None:
    """Sites warn with either signal; only one of them is submitit's."""
    with pytest.raises(SystemExit, match="requeued"):
        ended_by(SystemExit("requeued"), tmp_path, Signalled(number, deaf=deaf))
    assert Submissions(tmp_path).result("7_1") is None


def test_a_job_that_slurm_ends_waits_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm requeues a job that it preempts, and none that ended by itself meanwhile: SIGTERM comes
    twice.
    """
    monkeypatch.setattr(
        "dgbench.sweeps.requeue.time.sleep", lambda _: os.kill(os.getpid(), signal.SIGTERM)
    )
    command = Signalled(signal.SIGTERM)
    with pytest.raises(SystemExit, match="ended by Slurm"):
        ended_by(SystemExit("requeued"), tmp_path, command)
    assert command.begun == 1 and Submissions(tmp_path).result("7_1") is None


def test_a_job_that_slurm_did_not_end_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dgbench.sweeps.requeue.time.sleep", lambda _: None)
    command = Signalled(signal.SIGTERM)
    assert ended_by(SystemExit("requeued"), tmp_path, command) == {}
    assert command.begun == 2


def test_a_warning_while_it_waits_has_it_requeued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dgbench.sweeps.requeue.time.sleep", lambda _: os.kill(os.getpid(), signal.SIGUSR2)
    )
    with pytest.raises(SystemExit, match="requeued"):
        ended_by(SystemExit("requeued"), tmp_path, Signalled(signal.SIGTERM))


def test_slurm_says_it_twice(tmp_path: Path) -> None:
    """To the job and to its step: the run is still on its way to a checkpoint.

    Then it is warned, and does not stop.
    """
    command = Signalled(signal.SIGTERM, signal.SIGTERM, signal.SIGUSR2, deaf=True)
    with pytest.raises(SystemExit, match="requeued"):
        ended_by(SystemExit("requeued"), tmp_path, command)

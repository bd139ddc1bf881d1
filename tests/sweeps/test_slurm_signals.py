"""Slurm's warning of the time limit interrupts a run: what goes wrong in its handler is no fault of that run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from dgbench.sweeps.slurm import Batch
from dgbench.sweeps.submissions import Submissions
from dgbench.sweeps.work import SweepCommand


class Warned:
    """Stands for a command whose run is warned, and takes every error for one of its own."""

    def run(self, words: Sequence[str], number: int) -> str | None:
        try:
            os.kill(os.getpid(), signal.SIGUSR2)
        except Exception as error:
            return f"the run failed: {error}"
        return None


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Leave the handlers of this process as they were."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def ended_by(error: Exception | None, folder: Path) -> Any:
    """Run a job whose handler of the warning raises; what it wrote of its end."""

    def handler(number: int, frame: Any) -> None:
        if error is not None:
            raise error

    signal.signal(signal.SIGUSR2, handler)
    try:
        Batch(cast(SweepCommand, Warned()), {"key": ["seed=0"]}, folder)()
    finally:
        result = Submissions(folder).result("7_1")
    return result


@pytest.fixture(autouse=True)
def job_of_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")


def test_a_run_goes_on_after_a_signal(tmp_path: Path) -> None:
    assert ended_by(None, tmp_path) == {}


@pytest.mark.parametrize(
    "error", [subprocess.CalledProcessError(1, "scontrol"), subprocess.TimeoutExpired("scontrol", 60), OSError("full")]
)
def test_a_job_that_slurm_did_not_requeue_is_lost(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not requeued"):
        ended_by(error, tmp_path)
    assert Submissions(tmp_path).result("7_1") is None


def test_what_submitit_gives_up_is_the_result(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="too many times"):
        ended_by(RuntimeError("timed out too many times"), tmp_path)
    assert Submissions(tmp_path).result("7_1") == "job 7_1: RuntimeError: timed out too many times"

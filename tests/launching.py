"""Sweeps in processes of their own: started, waited for, and the processes that train found by the
locks they hold.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.records.locks import is_locked, lock_holder
from tests.conftest import clean_environment

SECONDS = 240  # after which nothing happens
STARTED: list[subprocess.Popen[str]] = []  # by the test that runs
START = """
import importlib, signal, sys
# a job in the background may have inherited that it is ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
program = sys.argv.pop(1)
sys.argv[0] = f"{program}.py"
getattr(importlib.import_module(f"dgbench.cli.{program}"), program)()
"""


def start(
    folder: Path,
    *words: str,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    program: str = "train",
) -> subprocess.Popen[str]:
    """Start a command; what it says is added to the files ``out`` and ``err`` of its folder.

    Args:
        folder: where it starts.
        words: its overrides.
        env: variables of its environment, beside those of a user.
        before: a command that starts it, as ``ip netns exec NAME``.
        program: ``train`` or ``shift``.
    """
    command = [*before, sys.executable, "-c", START, program, *words]
    with (folder / "err").open("a") as err, (folder / "out").open("a") as out:
        STARTED.append(
            subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=err, env=clean_environment(env)
            )
        )
    return STARTED[-1]


def end_all() -> None:
    """End what a failed test leaves running;
    a test after it would be slowed down and warned of it.
    """
    for process in STARTED:
        process.kill()
        process.wait()
    STARTED.clear()


def until(done: Callable[[], Any], process: subprocess.Popen[str], folder: Path) -> Any:
    """Wait for something that a sweep does before it ends; gives what ``done`` gave."""
    deadline = time.monotonic() + SECONDS
    while not (value := done()):
        said = (folder / "err").read_text()
        assert process.poll() is None, f"the sweep ended early\n{said}"
        assert time.monotonic() < deadline, f"nothing happens\n{said}"
        time.sleep(0.05)
    return value


def claimed(folder: Path, runs: str = "*") -> list[tuple[Path, int]]:
    """Runs being trained at this moment, with the process that trains each; of studies whose name
    fits a pattern.
    """
    locked = [
        lock.parent for lock in folder.glob(f"multirun/{runs}/*/lock") if is_locked(lock.parent)
    ]
    holders = [(run, re.search(r"process (\d+)", lock_holder(run))) for run in locked]
    return [(run, int(match[1])) for run, match in holders if match]


def running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

"""Starting, watching and ending the processes that train one run together.

The process that the user started is number 0. The others read their task from a pipe, and end when that pipe closes:
whatever becomes of process 0, be it killed, none of them is left behind.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch.distributed

from dgbench.errors import DgbenchError
from dgbench.training.distributed import Process

SECONDS_TO_END = 60  # for the others, once process 0 is through
SECONDS_TO_COMPLAIN = 5  # for one that broke, to say why


class ProcessError(DgbenchError):
    """One of the processes of a run ended before its time."""


@contextmanager
def processes(count: int, folder: Path, resumes: bool) -> Iterator[Process | None]:
    """Process 0 of ``count`` that train the run of a run folder; None for a process that trains alone.

    Args:
        count: how many.
        folder: the run's folder with its ``config.yaml``; process k logs to ``process-k.txt`` in it.
        resumes: whether the run continues from its checkpoint.

    Raises:
        ProcessError: another process broke; what process 0 then met is its cause.
    """
    if count == 1:
        yield None
        return
    port = _free_port()
    others = [_start(folder, {"rank": k, "count": count, "port": port, "resumes": resumes}) for k in range(1, count)]
    try:
        yield Process(0, count, port)
        for other in others:
            with suppress(subprocess.TimeoutExpired):
                other.wait(SECONDS_TO_END)
    except DgbenchError:
        raise
    except Exception as error:
        broken = _broken(others, folder)
        if broken:
            raise ProcessError(broken) from error
        raise
    finally:
        for other in others:
            assert other.stdin
            other.stdin.close()
            other.kill()
            other.wait()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _start(folder: Path, task: dict[str, Any]) -> subprocess.Popen[str]:
    """A process of its own session, so that Ctrl-C reaches process 0 alone."""
    with open(folder / f"process-{task['rank']}.txt", "w") as output:
        other = subprocess.Popen(
            [sys.executable, "-m", "dgbench.training.worker"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
    assert other.stdin
    other.stdin.write(json.dumps({**task, "folder": str(folder.absolute())}) + "\n")
    other.stdin.flush()
    return other


def _broken(others: list[subprocess.Popen[str]], folder: Path) -> str:
    """What the first process that ended with an error said last; empty if none did."""
    for k, other in enumerate(others, start=1):
        with suppress(subprocess.TimeoutExpired):
            if other.wait(SECONDS_TO_COMPLAIN):
                file = folder / f"process-{k}.txt"
                said = file.read_text().strip().splitlines() or [f"exit status {other.returncode}"]
                return f"process {k} of {len(others) + 1}: {said[-1]}; {file.name} in the run folder has more"
    return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

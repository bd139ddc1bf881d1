"""End the clusters that tests start once the process of the tests is gone, however it ended.

``python -m tests.launchers.clusters slurm FOLDER`` and ``... ray FOLDER NODE NODE`` wait for the
end of their standard input, which the process of the tests keeps open: the system closes it also
when that process is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DAEMONS = ("slurmd", "slurmctld", "munged")
SECONDS = 15  # for a daemon, or for jobs, to end


@contextmanager
def ended_with_us(kind: str, *words: object) -> Iterator[None]:
    """Have a cluster ended when the block or this process ends.

    Args:
        kind: of the cluster, a key of :data:`ENDS`.
        words: where it is.
    """
    watcher = subprocess.Popen(
        [sys.executable, "-m", "tests.launchers.clusters", kind, *map(str, words)],
        stdin=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,  # out of reach of Ctrl-C
    )
    assert watcher.stdin
    try:
        yield
    finally:
        watcher.stdin.close()
        watcher.wait(4 * SECONDS)


def end_slurm(folder: Path) -> None:
    """End jobs, daemons and what else was started with the configuration of a cluster."""
    conf = folder / "slurm.conf"
    env = {**os.environ, "SLURM_CONF": str(conf)}
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["scancel", "--user", "root"], env=env, timeout=SECONDS, capture_output=True)
        _soon(lambda: not _output(["squeue", "--noheader"], env))
    for name in DAEMONS:
        with suppress(OSError, ValueError):
            pid = int((folder / "run" / f"{name}.pid").read_text())
            os.kill(pid, signal.SIGTERM)
            _soon(lambda pid=pid: not Path(f"/proc/{pid}").exists())  # type: ignore[misc]
    end_processes_with(f"SLURM_CONF={conf}")


def end_ray(folder: Path, nodes: Sequence[str]) -> None:
    """End what runs on the nodes of Ray, and remove them."""
    for node in nodes:
        if not Path("/run/netns", node).exists():
            continue
        while pids := _output(["ip", "netns", "pids", node], os.environ).split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        subprocess.run(["ip", "netns", "delete", node], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def processes_with(variable: str) -> list[int]:
    """List the processes whose environment had a variable, ``NAME=value``, when they began."""
    pids = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (place / "environ").read_bytes().split(b"\0"):
                pids.append(int(place.name))
    return pids


def end_processes_with(variable: str) -> None:
    """Kill the processes whose environment had a variable, less this one."""
    for pid in processes_with(variable):
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _output(command: Sequence[str], env: object) -> str:
    ended = subprocess.run(command, env=env, timeout=SECONDS, capture_output=True, text=True)  # type: ignore[call-overload]
    return str(ended.stdout).strip()


def _soon(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.1)


#: kind of cluster -> what ends it
ENDS: dict[str, Callable[..., None]] = {
    "slurm": lambda folder: end_slurm(Path(folder)),
    "ray": lambda folder, *nodes: end_ray(Path(folder), nodes),
}

if __name__ == "__main__":
    sys.stdin.read()
    ENDS[sys.argv[1]](*sys.argv[2:])

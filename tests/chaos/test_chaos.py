"""Processes of a running sweep are killed many times, and it ends with the rows of an undisturbed
one.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.status import read_status

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("CHAOS_KILLS", "50"))
RUNS = 16
STEPS = 400 if KILLS > 10 else 120  # of a run; all kills fall before the last one is done
SECONDS = 900  # after which it hangs
SWEEP = (
    "-m",
    "dataset.base=digits",
    "backbone.width=8",
    f"trainer.steps={STEPS}",
    "trainer.eval_every=20",
    "trainer.device=cpu",
    "trainer.checkpoint_seconds=0",
    "seed=0,1,2,3",
)
#: two runs a job, one by one; four a job, as a stack whose rounding an unstable method would
#: amplify
MODES = {
    "single": ("execution=single", "algorithm=erm,vrex", "protocol.folds=[0,full]"),
    "stacked": ("execution=stacked", "algorithm=irm", "protocol.folds=[0,1,2,3]"),
}


def processes(root: int) -> dict[str, list[int]]:
    """Processes of a sweep by what they are: ``launcher``, the ``server`` that workers are forked
    from, ``worker``.
    """
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    servers = [pid for pid, parent in parents.items() if parent == root and _is_server(pid)]
    # a worker outlives its server, and belongs to the launcher still: it is found by the server's
    # name it keeps
    workers = [
        pid
        for pid in parents
        if pid not in servers and _is_server(pid) and _session(pid) == _session(root)
    ]
    return {"launcher": [root], "server": servers, "worker": workers}


def _is_server(pid: int) -> bool:
    try:
        return b"multiprocessing.forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


@pytest.mark.parametrize("mode", MODES)
def test_kills_change_no_row(
    mode: str, command: Any, rows_of: Callable[[Path], dict[str, bytes]], tmp_path: Path
) -> None:
    """Most victims are workers; every tenth is the server that they are forked from or the launcher
    itself, after which the same command is started again. Two launchers share the folder whenever
    the old one's workers are still dying.
    """
    alone, shaken = tmp_path / "alone", tmp_path / "shaken"
    alone.mkdir()
    shaken.mkdir()
    chance = random.Random(7)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    sweep_words = (*SWEEP, *MODES[mode])
    words = [
        sys.executable,
        str(ROOT / "train.py"),
        *sweep_words,
        "hydra/launcher=local",
        "hydra.launcher.workers=2",
    ]
    killed: Counter[str] = Counter()
    deadline = time.monotonic() + SECONDS
    starts = 0
    while killed.total() < KILLS:
        starts += 1
        with (
            (shaken / "err").open("a") as err,
            subprocess.Popen(
                words, cwd=shaken, env=env, stderr=err, start_new_session=True
            ) as sweep,
        ):
            while sweep.poll() is None and killed.total() < KILLS:
                assert time.monotonic() < deadline, killed
                time.sleep(chance.uniform(0.1, 0.6))
                kind = "worker" if killed.total() % 10 else chance.choice(("server", "launcher"))
                alive = processes(sweep.pid)
                if alive["worker"] and alive[kind]:
                    os.kill(chance.choice(alive[kind]), signal.SIGKILL)
                    killed[kind] += 1
            if killed.total() == KILLS:
                sweep.wait(max(0.0, deadline - time.monotonic()))
        done = [read_status(status.parent).word for status in shaken.rglob("status")]
        assert killed.total() == KILLS or done != ["DONE"] * RUNS, (
            f"over after {killed}: lengthen trainer.steps"
        )
    last = subprocess.run(
        words, cwd=shaken, env=env, stderr=subprocess.PIPE, text=True, timeout=SECONDS
    )
    assert last.returncode == 0, last.stderr
    assert [read_status(status.parent).word for status in shaken.rglob("status")] == ["DONE"] * RUNS
    assert command("train.py", *sweep_words, cwd=alone).code == 0
    assert rows_of(shaken) == rows_of(alone)
    print(f"{killed}, {starts} starts")

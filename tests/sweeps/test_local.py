"""``hydra/launcher=local``: the rows of one process, and what happens when workers die or the user
stops.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from dgbench.configuration import CONF
from dgbench.sweeps import local
from dgbench.sweeps import sizes as machine
from dgbench.sweeps.local import LauncherKeys, LocalKeys
from dgbench.sweeps.slurm_keys import SlurmKeys
from tests.complaints import one_line, refused
from tests.launching import claimed, running, start, until

TINY = (
    "dataset.base=digits",
    "execution=single",
    "backbone.width=8",
    "trainer.steps=12",
    "trainer.eval_every=4",
    "trainer.device=cpu",
    "trainer.checkpoint_seconds=0",
)
LOCAL = ("hydra/launcher=local", "hydra.launcher.workers=2")
Rows = Callable[[Path], dict[str, bytes]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "many", [("grid.seed=[0,1]",), ("hparams=search", "hparams.scheme.draws=2")]
)
def test_a_job_of_several_studies(
    many: tuple[str, ...], command: Any, rows_of: Rows, tmp_path: Path
) -> None:
    """Workers, which Hydra did not start, compose a grid and draw a search as the command itself
    does.
    """
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    alone.mkdir()
    shared.mkdir()
    sweep = ("-m", *TINY, "protocol.folds=[0]", "algorithm=erm,vrex", *many)
    assert command("train.py", *sweep, cwd=alone).code == 0
    ended = command("train.py", *sweep, *LOCAL, cwd=shared)
    assert ended.code == 0
    assert rows_of(shared / "multirun") == rows_of(alone / "multirun")
    assert ended.out.startswith("2 of 2 jobs done"), "what jobs print goes to their logs"
    assert all("rows: " in log.read_text() for log in shared.glob("multirun/.jobs/*.log"))
    assert len(rows_of(shared)) >= 4


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A sweep of three long jobs by two workers, in a process of its own."""
    words = [
        "-m",
        *TINY,
        *LOCAL,
        "protocol.folds=[full]",
        "seed=0,1,2",
        "trainer.steps=3000",
        "trainer.eval_every=20",
    ]
    with start(tmp_path, *words) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_a_job_whose_process_dies_twice_is_given_up(
    sweep: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The first job's process is killed, its replacement too; then Ctrl-C ends the rest with exit
    code 130.
    """
    run, first = until(lambda: claimed(tmp_path), sweep, tmp_path)[0]
    os.kill(first, signal.SIGKILL)
    second = until(
        lambda: [pid for path, pid in claimed(tmp_path) if path == run and pid != first],
        sweep,
        tmp_path,
    )[0]
    os.kill(second, signal.SIGKILL)
    until(lambda: "its process died 2 times" in (tmp_path / "err").read_text(), sweep, tmp_path)
    until(lambda: len(claimed(tmp_path)) == 2, sweep, tmp_path)  # its neighbor, and the third job
    pids = [pid for _, pid in claimed(tmp_path)]
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(30) == 130
    assert not claimed(tmp_path) and not any(running(pid) for pid in pids)
    err = (tmp_path / "err").read_text()
    assert err.splitlines()[-1] == "dgbench: interrupted; the same command continues"
    assert "Traceback" not in err and "leaked" not in err


@pytest.mark.slow
def test_workers_end_when_their_launcher_is_killed(
    sweep: subprocess.Popen[str], command: Any, tmp_path: Path
) -> None:
    pids = until(lambda: found if len(found := claimed(tmp_path)) == 2 else None, sweep, tmp_path)
    sweep.kill()
    sweep.wait()
    deadline = time.monotonic() + 30
    while claimed(tmp_path) or any(running(pid) for _, pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    status = command("report.py", "report=status", cwd=tmp_path)
    jobs = len(list(tmp_path.glob("multirun/.jobs/*.log")))
    assert jobs == 2, "the third never began"
    assert "  3 jobs of sweeps" in status.out


@pytest.mark.parametrize(
    ("visible", "cores", "keys", "device", "expected"),
    [
        ("", 4, (None, 1, 1), "auto", [None] * 4),
        ("", 4, (None, 1, 2), "auto", [None] * 2),
        ("", 4, (3, 1, 1), "auto", [None] * 3),
        ("0,GPU-8", 16, (None, 1, 1), "auto", ["0", "GPU-8"]),
        ("0,GPU-8", 16, (None, 2, 1), "gpu", ["0", "GPU-8", "0", "GPU-8"]),
        ("0,GPU-8", 3, (None, 2, 1), "gpu", ["0", "GPU-8", "0"]),
        ("0,GPU-8", 4, (None, 1, 1), "cpu", [None] * 4),
        ("-1", 2, (None, 1, 1), "auto", [None] * 2),
    ],
)
def test_who_trains_on_what(
    visible: str,
    cores: int,
    keys: tuple[Any, int, int],
    device: str,
    expected: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(local, "cores", lambda: cores)
    launcher = local.LocalLauncher(*keys)
    launcher.config = OmegaConf.create({"trainer": {"device": device}})
    assert launcher._devices() == expected


@pytest.mark.parametrize(
    ("check", "key", "value", "said"),
    [
        (
            LocalKeys,
            "workers",
            0,
            r"hydra\.launcher\.workers=0.*integer >= 1.*null",
        ),
        (LocalKeys, "workers", "abc", r"hydra\.launcher\.workers=abc.*integer >= 1.*null"),
        (LocalKeys, "threads", None, r"hydra\.launcher\.threads=null.*integer >= 1"),
        (LocalKeys, "per_gpu", 1.5, r"hydra\.launcher\.per_gpu=1\.5.*integer >= 1"),
        (SlurmKeys, "timeout_min", -1, r"hydra\.launcher\.timeout_min=-1.*integer >= 1.*null"),
        (SlurmKeys, "timeout_min", True, r"hydra\.launcher\.timeout_min=true.*integer >= 1"),
        (
            SlurmKeys,
            "gpus_per_node",
            "a100",
            r"hydra\.launcher\.gpus_per_node=a100.*integer >= 0",
        ),
        (SlurmKeys, "mem_gb", 0, r"hydra\.launcher\.mem_gb=0.*number > 0.*null"),
        (SlurmKeys, "poll_seconds", float("nan"), r"hydra\.launcher\.poll_seconds=nan.*number > 0"),
        (SlurmKeys, "resubmit", -1, r"hydra\.launcher\.resubmit=-1.*integer >= 0"),
    ],
)
def test_values_of_launchers_keys(
    check: type[LauncherKeys], key: str, value: Any, said: str
) -> None:
    file = "local" if check is LocalKeys else "slurm"
    keys = OmegaConf.to_container(OmegaConf.load(CONF / "hydra" / "launcher" / f"{file}.yaml"))
    assert isinstance(keys, dict)
    check(**keys)
    with refused(said):
        check(**{**keys, key: value})


def test_a_wrong_key_of_a_launcher_is_one_line(command: Any, tmp_path: Path) -> None:
    ended = command(
        "train.py", "-m", "hydra/launcher=local", "hydra.launcher.workers=abc", cwd=tmp_path
    )
    assert (ended.code, list(tmp_path.iterdir())) == (1, [])
    (line,) = ended.complaints
    one_line(line, r"hydra\.launcher\.workers=abc.*integer >= 1")


@pytest.mark.parametrize(
    ("limit", "expected"), [("150000 100000", 1), ("max 100000", 64), ("800000 100000", 8)]
)
def test_cores_of_a_container(
    limit: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    monkeypatch.setattr(machine, "CGROUP_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert machine.cores() == expected

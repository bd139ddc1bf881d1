"""What every launcher does for a sweep, whoever wrote it: "What a launcher must do" in
docs/how_to/sweeps.md.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.status import read_status
from tests.complaints import one_line
from tests.datasets import broken_mnist
from tests.launchers.conftest import RayCluster
from tests.launching import SECONDS, claimed, running, start, until

KILLS = 5
SWEEP = (
    "-m",
    "dataset.base=digits",
    "execution=single",
    "backbone.width=8",
    "trainer.steps=4000",
    "trainer.eval_every=200",
    "trainer.device=cpu",
    "trainer.checkpoint_seconds=0",
    "protocol.folds=[full]",
    "seed=0,1",
)
SLURM = (
    "partition=main",
    "cpus_per_task=1",
    "timeout_min=10",
    "poll_seconds=0.5",
    "max_num_timeout=0",
)
Rows = Callable[[Path], dict[str, bytes]]


@dataclass(frozen=True)
class Engine:
    """What starts a sweep on some launcher."""

    words: tuple[str, ...]  #: that choose it
    env: dict[str, str] = field(default_factory=dict)  #: variables that it needs
    before: tuple[str, ...] = ()  #: a command that starts the sweep
    elsewhere: tuple[
        str, ...
    ] = ()  #: words with which workers begin in another folder, where they do not anyway

    def start(self, folder: Path, *words: str) -> subprocess.Popen[str]:
        return start(folder, *words, *self.words, env=self.env, before=self.before)

    def ended(self, folder: Path, *words: str) -> int:
        """Exit code of a sweep that nobody disturbs."""
        return self.start(folder, *words).wait(SECONDS)


def on_ray(cluster: RayCluster) -> Engine:
    words = ("hydra/launcher=ray", f"hydra.launcher.ray.init.address={cluster.address}")
    return Engine(words, cluster.env, tuple(cluster.on(0)))


@pytest.fixture(
    params=[
        pytest.param("local", marks=pytest.mark.slow),
        pytest.param("joblib", marks=pytest.mark.slow),
        pytest.param("ray", marks=pytest.mark.cluster),
        pytest.param("slurm", marks=pytest.mark.cluster),
    ]
)
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "local":
        return Engine(("hydra/launcher=local", "hydra.launcher.workers=2"))
    if request.param == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
        return Engine(("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"))
    if request.param == "ray":
        return on_ray(request.getfixturevalue("ray_cluster"))
    words = (
        "hydra/launcher=slurm",
        *(f"hydra.launcher.{word}" for word in SLURM),
        "sweep.runs_per_job=1",
    )
    elsewhere = ("hydra.launcher.additional_parameters={chdir: /}",)
    return Engine(words, request.getfixturevalue("slurm_cluster"), elsewhere=elsewhere)


@pytest.fixture(scope="module")
def undisturbed(command: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep, one job after the other in one process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert command("train.py", *SWEEP, cwd=folder).code == 0
    return folder


def unfinished(folder: Path) -> int:
    runs = list(folder.glob("multirun/*/fold-*"))
    return 2 - sum(read_status(run).word == "DONE" for run in runs)


def signal_if_there(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def test_kills_change_no_row_and_no_work_is_left_behind_a_zero(
    engine: Engine, undisturbed: Path, command: Any, rows_of: Rows, tmp_path: Path
) -> None:
    """Ctrl-C first; then the first seed's process is killed five times, each time after it has
    trained on. All engines give a job up that often: the same command goes on.
    """
    assert engine.ended(tmp_path, *SWEEP, "plan=true") == 0
    assert not (tmp_path / "multirun").exists()

    sweep = engine.start(tmp_path, *SWEEP)
    until(lambda: claimed(tmp_path, "*-s0-*"), sweep, tmp_path)
    if (
        "hydra/launcher=slurm" in engine.words
    ):  # a cluster trains on while the command ends: not to the end
        for _, process in claimed(tmp_path, "*-s0-*"):
            signal_if_there(process, signal.SIGSTOP)
    sweep.send_signal(signal.SIGINT)
    codes, killed, size, deadline = [sweep.wait(60)], 0, 0, time.monotonic() + 4 * SECONDS
    while codes[-1]:
        assert unfinished(tmp_path), codes
        # after Ctrl-C a cluster trains on: not to its end before the kills
        in_queue = claimed(tmp_path, "*-s0-*")
        for _, process in in_queue:
            signal_if_there(process, signal.SIGSTOP)
        assert command("report.py", "report=status", cwd=tmp_path).code in (2, 3)
        sweep = engine.start(tmp_path, *SWEEP)
        for _, process in in_queue:
            signal_if_there(process, signal.SIGCONT)
        while sweep.poll() is None:
            assert time.monotonic() < deadline, (codes, killed, (tmp_path / "err").read_text())
            for run, process in claimed(tmp_path, "*-s0-*") if killed < KILLS else []:
                if (rows := run / "errors.jsonl").exists() and rows.stat().st_size > size:
                    size = rows.stat().st_size
                    os.kill(process, signal.SIGKILL)
                    killed += 1
                    while running(process):
                        time.sleep(0.02)
            time.sleep(0.05)
        codes.append(sweep.returncode)
    assert not re.search("Traceback|HYDRA_FULL_ERROR", (tmp_path / "err").read_text())
    assert killed == KILLS and codes[0] == 130 and len(codes) > 2, codes
    assert unfinished(tmp_path) == 0
    assert rows_of(tmp_path) == rows_of(undisturbed)
    logs = [run.read_text() for run in tmp_path.glob("multirun/*/fold-*/log.txt")]
    assert [log.count("done at step 4000: DONE") for log in logs] == [1] * 2, (
        "each was done by one process"
    )
    assert any(step != "0" for log in logs for step in re.findall(r"from step (\d+) on", log)), (
        "it resumes"
    )
    assert command("report.py", "report=status", cwd=tmp_path).code == 0
    again = command("train.py", *SWEEP, *engine.words, cwd=tmp_path, env=engine.env)
    assert (again.code, "nothing to do: all 2 jobs are done" in again.err) == (0, True), again


def test_a_failed_job_is_named_and_stops_no_other(
    engine: Engine, command: Any, rows_of: Rows, tmp_path: Path
) -> None:
    """Relative paths are meant from the folder of the command, wherever a worker starts."""
    broken_mnist(tmp_path / "data")
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    alone.mkdir()
    shared.mkdir()
    sweep = [word for word in SWEEP if not word.startswith(("dataset", "trainer.steps", "seed"))]
    sweep += ["trainer.steps=20", "dataset.base=mnist,digits", "paths.data_dir=../data"]
    assert command("train.py", *sweep, cwd=alone).code == 1
    assert engine.ended(shared, *sweep) == 1
    err = (shared / "err").read_text().splitlines()
    one_line(err[-1], r"^dgbench: 1 of 2 jobs failed \(dataset\.base=mnist\); .*same command")
    assert (
        len([line for line in err if re.search("dataset.base=mnist: FAILED: .*MNIST/raw", line)])
        == 1
    )
    assert "1 of 2 jobs done: 1 of their 1 models" in (shared / "out").read_text()
    status = command("report.py", "report=status", "runs=[multirun]", cwd=shared)
    assert (status.code, status.out.splitlines()[-1]) == (0, "  All done."), (
        "the sweep has told which job failed"
    )
    assert rows_of(shared) == rows_of(alone) and len(rows_of(shared)) == 1


def test_runs_are_where_the_command_looks(engine: Engine, tmp_path: Path) -> None:
    """Hydra moves the jobs, workers begin elsewhere, and a time in the name of the folder is that
    of the command.
    """
    sweep = [word for word in SWEEP if not word.startswith("trainer.steps")]
    moved = ("trainer.steps=20", "hydra.job.chdir=true", "hydra.sweep.dir=runs/${now:%H-%M-%S-%f}")
    assert engine.ended(tmp_path, *sweep, *moved, *engine.elsewhere) == 0, (
        tmp_path / "err"
    ).read_text()
    (folder,) = (tmp_path / "runs").iterdir()
    assert [read_status(run).word for run in folder.glob("*/fold-*")] == ["DONE"] * 2
    out = (tmp_path / "out").read_text()
    assert "2 of 2 jobs done: 2 of their 2 models" in out
    assert f"'runs=[runs/{folder.name}]'" in out


@pytest.mark.cluster
def test_a_node_of_ray_is_lost(
    ray_cluster: RayCluster, undisturbed: Path, rows_of: Rows, tmp_path: Path
) -> None:
    """Its runs go on where the other node left them to: in the shared folder."""
    sweep = on_ray(ray_cluster).start(tmp_path, *SWEEP)

    def trained_there() -> bool:
        there = ray_cluster.processes(1)
        return any(
            (run / "checkpoints" / "last.ckpt").exists() and pid in there
            for run, pid in claimed(tmp_path)
        )

    until(trained_there, sweep, tmp_path)
    ray_cluster.end_node(1)
    assert sweep.wait(SECONDS) == 0, (tmp_path / "err").read_text()
    assert rows_of(tmp_path) == rows_of(undisturbed)
    logs = [run.read_text() for run in tmp_path.glob("multirun/*/fold-*/log.txt")]
    assert any(step != "0" for log in logs for step in re.findall(r"from step (\d+) on", log))

"""A sweep on a real Slurm cluster: cancelled, killed, stopped at its time limit, and every run done
exactly once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dgbench.records.locks import lock_holder
from dgbench.records.status import read_status
from tests.complaints import one_line
from tests.datasets import broken_mnist
from tests.launchers.clusters import processes_with
from tests.launchers.conftest import LARGEST
from tests.launching import claimed, start, until

pytestmark = pytest.mark.cluster

TINY = (
    "dataset.base=digits",
    "execution=single",
    "backbone.width=8",
    "trainer.device=cpu",
    "protocol.folds=[0,full]",
)
OFTEN = ("trainer.eval_every=20", "trainer.checkpoint_seconds=0")
STEPS = 400
SWEEP = ("-m", *TINY, *OFTEN, f"trainer.steps={STEPS}", "seed=0,1,2")
QUEUE = (
    "hydra/launcher=slurm",
    "hydra.launcher.partition=main",
    "hydra.launcher.cpus_per_task=1",
    "hydra.launcher.timeout_min=10",
    "hydra.launcher.poll_seconds=0.5",
    # as many jobs of the queue as of the sweep, however fast this machine is
    "sweep.runs_per_job=1",
)
# Slurm warns up to 30 seconds earlier: 60 to 90 seconds after the start, which may take half of
# that on a busy machine
BRIEF = ("hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=30")


@pytest.fixture(autouse=True)
def nothing_left(slurm_cluster: dict[str, str]) -> Iterator[None]:
    """End what a test leaves in the queue, or the next one waits behind it."""
    yield
    slurm(slurm_cluster, "scancel", "--user", "root")
    deadline = time.monotonic() + 30
    while slurm(slurm_cluster, "squeue", "--noheader").strip() and time.monotonic() < deadline:
        time.sleep(0.2)


def trained(folder: Path, seed: int) -> tuple[int, str] | None:
    """Process and Slurm job that train a run of a seed at this moment."""
    for run, pid in claimed(folder, f"*-s{seed}-*"):
        if job := re.search(r" job (\S+)", lock_holder(run)):
            return pid, job[1]
    return None


def slurm(slurm_cluster: dict[str, str], *words: str) -> str:
    return subprocess.run(
        words, env={**os.environ, **slurm_cluster}, capture_output=True, text=True, timeout=30
    ).stdout


def warned(pid: int) -> bool:
    """Whether SIGUSR2 waits for a stopped process."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s+(\w+)", status, re.M)
    return any(int(mask, 16) & 1 << (signal.SIGUSR2 - 1) for mask in masks)


def requeued(folder: Path) -> bool:
    """Whether a job had itself requeued at its time limit."""
    files = [*folder.glob("multirun/.jobs/*.log"), *folder.glob("multirun/.submitit/*_log.*")]
    logs = [path.read_text() for path in files]
    return any("Caught signal SIGUSR2" in log and "Exiting gracefully" in log for log in logs)


def cut_power(slurm_cluster: dict[str, str]) -> None:
    """Kill the daemon of the node and all that its jobs run."""
    for pid in processes_with(f"SLURM_CONF={slurm_cluster['SLURM_CONF']}"):
        with suppress(OSError):
            is_job = b"\0SLURM_JOB_ID=" in Path(f"/proc/{pid}/environ").read_bytes()
            if is_job or Path(f"/proc/{pid}/comm").read_text().strip() in ("slurmd", "slurmstepd"):
                os.kill(pid, signal.SIGKILL)


def story(folder: Path) -> str:
    """All that a sweep said: on the terminal, in its jobs' logs and in the logs of its runs."""
    files = [
        folder / "err",
        *sorted(folder.glob("multirun/.jobs/*.log")),
        *sorted(folder.glob("multirun/*/*/log.txt")),
    ]
    return "\n".join(f"== {file.relative_to(folder)}\n{file.read_text()[-4000:]}" for file in files)


def test_every_run_is_done_exactly_once(
    slurm_cluster: dict[str, str],
    command: Any,
    rows_of: Callable[[Path], dict[str, bytes]],
    tmp_path: Path,
) -> None:
    """Seed 0 is cancelled with scancel, seed 1 stands still until Slurm warns of its time limit,
    seed 2 is killed.
    """
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    shared.mkdir()
    alone.mkdir()
    done: set[str] = set()
    paused = cancelled = 0
    deadline = time.monotonic() + 400
    first = start(shared, *SWEEP, *QUEUE, *BRIEF, env=slurm_cluster)
    while len(done) < 3 or Path(f"/proc/{cancelled}").exists():
        if not cancelled and (found := trained(shared, 0)):
            cancelled = found[0]
            slurm(slurm_cluster, "scancel", found[1])
            done.add("cancelled")
        if cancelled:
            with suppress(
                ProcessLookupError
            ):  # or it is done before Slurm, which continues it once, kills it
                os.kill(cancelled, signal.SIGSTOP)
        if not paused and (found := trained(shared, 1)):
            paused = found[0]
            os.kill(paused, signal.SIGSTOP)
        if (
            paused and "warned" not in done and (warned(paused) or requeued(shared))
        ):  # Slurm may wake it up itself
            if Path(f"/proc/{paused}").exists():
                os.kill(paused, signal.SIGCONT)
            done.add("warned")
        if "killed" not in done and (found := trained(shared, 2)):
            os.kill(found[0], signal.SIGKILL)
            done.add("killed")
        assert first.poll() is None and time.monotonic() < deadline, f"{done}\n{story(shared)}"
        time.sleep(0.05)
    code = first.wait(240)
    err = (shared / "err").read_text()
    assert code == 1, story(shared)
    assert re.search(r"seed=0: FAILED: job \d+_0 was cancelled", err), story(shared)
    assert re.search(r"seed=2: job \d+_2 is lost( \(FAILED\))?; submitted again", err), story(
        shared
    )
    for seed in (1, 2):
        assert re.search(rf"^\[\d/3\] seed={seed}: done", err, re.M), story(shared)
    assert requeued(shared)

    second = start(shared, *SWEEP, *QUEUE, *BRIEF, env=slurm_cluster)
    process, _ = until(lambda: trained(shared, 0), second, shared)
    os.kill(process, signal.SIGSTOP)  # or it may be done before the third command asks the queue
    second.send_signal(signal.SIGINT)
    assert second.wait(60) == 130
    assert "the same command watches" in (shared / "err").read_text()
    third = start(shared, *SWEEP, *QUEUE, *BRIEF, env=slurm_cluster)
    until(lambda: "1 job is in the queue already" in (shared / "err").read_text(), third, shared)
    with suppress(ProcessLookupError):  # on a busy machine Slurm may have requeued it meanwhile
        os.kill(process, signal.SIGCONT)
    assert third.wait(240) == 0, story(shared)
    assert "2 of 3 jobs" in (shared / "err").read_text()
    fourth = start(shared, *SWEEP, *QUEUE, *BRIEF, env=slurm_cluster)
    assert fourth.wait(60) == 0
    assert (shared / "err").read_text().splitlines()[-1].endswith("all 3 jobs are done (retry=all)")

    statuses = sorted(shared.glob("multirun/*/fold-*"))
    assert [read_status(folder).word for folder in statuses] == ["DONE"] * 6
    ends = [
        (folder / "log.txt").read_text().count(f"done at step {STEPS}: DONE") for folder in statuses
    ]
    assert ends == [1] * 6, "each was done by one process"
    assert command("train.py", *SWEEP, cwd=alone).code == 0
    assert rows_of(shared) == rows_of(alone)
    assert not slurm(slurm_cluster, "squeue", "--noheader").strip()


def test_no_step_is_lost_where_a_cluster_takes_the_node_back(
    slurm_cluster: dict[str, str],
    command: Any,
    rows_of: Callable[[Path], dict[str, bytes]],
    tmp_path: Path,
) -> None:
    """A job is warned with SIGUSR1, then preempted by a more urgent one, then its node dies.

    No checkpoint is due by time: what it continues from was written when it was asked to end.
    """
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    shared.mkdir()
    alone.mkdir()
    words = (
        "-m",
        *TINY[:-1],
        "protocol.folds=[full]",
        "trainer.eval_every=150",
        "trainer.steps=5000",
    )
    words = (*words, "trainer.checkpoint_seconds=100000", "seed=0")
    sweep = start(shared, *words, *QUEUE, env=slurm_cluster)
    step = 0

    def evaluated() -> int:
        rows = [
            line
            for file in shared.glob("multirun/*/fold-*/errors.jsonl")
            for line in file.read_text().splitlines()
        ]
        steps = [json.loads(row)["step"] for row in rows if row.endswith("}")]
        return max(steps, default=0)

    def trained_on() -> str | None:
        found = trained(shared, 0)
        return found[1] if found and evaluated() > step else None

    def some_steps_after_an_evaluation() -> str:
        job = until(trained_on, sweep, shared)
        time.sleep(0.5)
        return str(job)

    job = some_steps_after_an_evaluation()
    slurm(slurm_cluster, "scancel", "--signal=USR1", job)
    until(lambda: trained(shared, 0) is None, sweep, shared)
    step = evaluated()
    some_steps_after_an_evaluation()
    urgent = (
        "sbatch",
        "--partition=urgent",
        "--cpus-per-task=4",
        "--output=/dev/null",
        "--wrap=sleep 1",
    )
    slurm(slurm_cluster, *urgent)
    until(lambda: trained(shared, 0) is None, sweep, shared)
    step = evaluated()
    some_steps_after_an_evaluation()
    cut_power(slurm_cluster)
    node = socket.gethostname().partition(".")[0]
    slurm(slurm_cluster, "scontrol", "update", f"nodename={node}", "state=down", "reason=dead")
    slurm(slurm_cluster, "slurmd")
    assert sweep.wait(240) == 0, story(shared)
    (log,) = [file.read_text() for file in shared.glob("multirun/*/fold-*/log.txt")]
    begun = [int(step) for step in re.findall(r"from step (\d+) on", log)]
    assert len(begun) == 4 and begun[0] == 0, story(shared)
    assert 0 < begun[1] < begun[2] == begun[3], story(shared)
    assert "submitted again" not in (shared / "err").read_text(), "Slurm itself requeues it"
    assert command("train.py", *words, cwd=alone).code == 0
    assert rows_of(shared) == rows_of(alone)


def test_small_runs_share_a_job(slurm_cluster: dict[str, str], tmp_path: Path) -> None:
    """Studies of two models, four models to a job of the queue.

    Those whose images are broken fail alone.
    """
    broken_mnist(tmp_path / "data")
    bases = ("paths.data_dir=data", "dataset.base=digits,mnist")
    words = ("-m", *TINY[1:], "trainer.steps=4", "trainer.eval_every=4", "seed=0,1", *bases)
    assert start(tmp_path, *words, *QUEUE, "sweep.runs_per_job=4", env=slurm_cluster).wait(240) == 1
    err = (tmp_path / "err").read_text()
    assert re.search("4 of .* submitted as [23] of ", err), err
    assert re.search("dataset.base=mnist: FAILED: .*MNIST/raw", err), err
    failed = "seed=0 dataset.base=mnist; seed=1 dataset.base=mnist"
    assert err.splitlines()[-1].startswith(
        f"dgbench: 2 of 4 jobs failed ({failed}); correct the cause"
    )
    assert [read_status(path.parent).word for path in tmp_path.rglob("status")] == ["DONE"] * 4


def test_what_slurm_refuses_is_told(slurm_cluster: dict[str, str], tmp_path: Path) -> None:
    queue = [word.replace("partition=main", "partition=none") for word in QUEUE]
    words = ("-m", *TINY, "seed=0", *queue)
    assert start(tmp_path, *words, env=slurm_cluster).wait(60) == 1
    first, *sbatch, line = (tmp_path / "err").read_text().splitlines()
    assert first.endswith("jobs of the sweep ...")
    assert all(each.startswith("sbatch: error: ") for each in sbatch)
    assert re.match(r"dgbench: Slurm refuses .*partition.*; see hydra\.launcher", line), line


def test_more_jobs_than_an_array_takes(slurm_cluster: dict[str, str], tmp_path: Path) -> None:
    words = ("-m", *TINY, "trainer.steps=4", f"seed=range({LARGEST + 1})", *QUEUE, "wait=false")
    assert start(tmp_path, *words, env=slurm_cluster).wait(120) == 0, story(tmp_path)
    err = (tmp_path / "err").read_text()
    assert "5 of the sweep's jobs submitted as 5 of the queue's" in err, err
    one_line(
        next(line for line in err.splitlines() if "arrays" in line),
        f"2 arrays: this cluster takes {LARGEST} jobs in one; sweep.runs_per_job=4 makes one",
    )
    tasks = slurm(slurm_cluster, "squeue", "--noheader", "--array", "--format", "%K").split()
    assert sorted(tasks) == ["0", "0", "1", "1", "2"]


# A limit of accounting, which needs a database: as sbatch of 22.05 with one words it
LIMIT = """#!/bin/bash
waiting=$(squeue --noheader --array --user root | wc -l)
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$1")
if [ $((waiting + ${last:-0} + 1)) -gt 2 ]; then
    echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2
    echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy" \\
        "(job submit limit, user's size and/or time limits)" >&2
    exit 1
fi
exec SBATCH "$@"
"""


def test_a_limit_on_the_jobs_of_a_user(slurm_cluster: dict[str, str], tmp_path: Path) -> None:
    """Two at a time: without watching the rest is told, a command that watches submits it."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(LIMIT.replace('SBATCH "', f'{shutil.which("sbatch")} "'))
    sbatch.chmod(0o755)
    env = {**slurm_cluster, "PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
    words = ("-m", *TINY, "trainer.steps=4", "trainer.eval_every=4", "seed=0,1,2", *QUEUE)
    assert start(tmp_path, *words, "wait=false", env=env).wait(120) == 1, story(tmp_path)
    err = (tmp_path / "err").read_text()
    one_line(
        err.splitlines()[-1],
        (
            "dgbench: 1 of 3 jobs of the queue are not submitted "
            ".QOSMaxSubmitJobPerUserLimit.*runs_per_job=4"
        ),
    )
    assert "sbatch: error" not in err
    assert start(tmp_path, *words, env=env).wait(240) == 0, story(tmp_path)
    err = (tmp_path / "err").read_text()[len(err) :]
    assert "no room for 1 more (QOSMaxSubmitJobPerUserLimit)" in err, err
    assert "1 of the sweep's jobs submitted as 1 of the queue's" in err, err
    assert [read_status(path.parent).word for path in tmp_path.rglob("status")] == ["DONE"] * 6


def test_a_command_that_does_not_wait(
    slurm_cluster: dict[str, str], command: Any, tmp_path: Path
) -> None:
    """Three jobs are left to the queue and one is cancelled: the same command submits that one
    again, and no other.
    """
    leaves = (*SWEEP, *QUEUE, "wait=false")

    def said(process: subprocess.Popen[str], since: int) -> str:
        assert process.wait(240) == 0, story(tmp_path)
        return (tmp_path / "err").read_text()[since:]

    def told() -> int:
        return len((tmp_path / "err").read_text()) if (tmp_path / "err").exists() else 0

    first = said(start(tmp_path, *leaves, env=slurm_cluster), 0)
    assert re.search("3 of .* submitted as 3 of ", first), first
    assert (
        re.search(r"^watch: .*report=status 'runs=\[multirun\]'$", first, re.M)
        and "end: scancel" in first
    )
    submitted = command("report.py", "report=status", cwd=tmp_path)
    assert submitted.code == 2 and "3 jobs of sweeps" in submitted.out, submitted
    deadline = time.monotonic() + 180
    while not (found := trained(tmp_path, 0)):
        assert time.monotonic() < deadline, slurm(slurm_cluster, "squeue")
        time.sleep(0.05)
    slurm(slurm_cluster, "scancel", found[1])
    while (
        found[1]
        in slurm(slurm_cluster, "squeue", "--noheader", "--array", "--format", "%i").split()
    ):
        assert time.monotonic() < deadline, slurm(slurm_cluster, "squeue")
        with suppress(
            ProcessLookupError
        ):  # or it is done before Slurm, which continues it once, kills it
            os.kill(found[0], signal.SIGSTOP)
        time.sleep(0.05)
    since = told()
    again = said(start(tmp_path, *leaves, env=slurm_cluster), since)
    assert "(1 cancelled): submitted again" in again, again
    assert re.search("1 of .* submitted as 1 of ", again), again

    since = told()
    said(start(tmp_path, *SWEEP, *QUEUE, env=slurm_cluster), since)  # this one waits
    assert (
        (tmp_path / "out")
        .read_text()
        .rstrip()
        .endswith("report: python report.py 'runs=[multirun]'")
    )
    assert "3 of 3 jobs done: 6 of their 6 models" in (tmp_path / "out").read_text()
    logs = [
        (folder / "log.txt").read_text() for folder in sorted(tmp_path.glob("multirun/*/fold-*"))
    ]
    assert [log.count(f"done at step {STEPS}: DONE") for log in logs] == [1] * 6, (
        "each was done by one process"
    )
    status = command("report.py", "report=status", cwd=tmp_path)
    assert (status.code, "All done." in status.out) == (0, True), status.out


def test_estimates_of_shift_are_jobs_too(slurm_cluster: dict[str, str], tmp_path: Path) -> None:
    few = (
        "dataset.base=digits",
        "backbone.width=8",
        "trainer.device=cpu",
        "trials=1",
        "halves=0",
        "cache_dir=null",
    )
    queue = [word for word in QUEUE if not word.startswith("sweep.")]
    words = ["-m", *few, "estimator.joint.steps=20", "dataset=sr_cmnist,cmnist_irm", *queue]
    process = start(tmp_path, *words, program="shift", env=slurm_cluster)
    assert process.wait(timeout=240) == 0, (tmp_path / "err").read_text()
    assert "2 of 2 jobs done" in (tmp_path / "out").read_text()
    assert len(list(tmp_path.glob("multirun/shift-*/shifts.jsonl"))) == 2

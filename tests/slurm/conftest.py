"""A Slurm cluster of one node from Debian's packages, without systemd: started for the tests and stopped after them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("slurm-wlm", "slurmctld", "slurmd", "slurm-client", "munge")
DAEMONS = ("slurmd", "slurmctld", "munged")
SECONDS = 60  # for the node to come up

# No accounting: Slurm forgets, and sacct answers nothing, as on many small clusters. cred_expire: a requeued job starts
# in seconds, not minutes. linuxproc: no control groups are needed.
CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=2
ReturnToService=2
JobRequeue=1
MailProg=/bin/true
KillWait=2
MinJobAge=600
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
SlurmctldPort={port}
SlurmdPort={other}
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables of the environment with which Slurm's commands find the cluster."""
    _need_packages()
    host = socket.gethostname().partition(".")[0]
    try:
        socket.gethostbyname(host)
    except OSError:
        pytest.skip(f"the name of this machine ({host}) has no address")
    folder = tmp_path_factory.mktemp("cluster")
    for name in ("state", "spool", "log", "run", "munge"):
        (folder / name).mkdir(mode=0o700 if name == "munge" else 0o755)
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=host, folder=folder, port=_free_port(), other=_free_port()))
    env = {**os.environ, "SLURM_CONF": str(conf)}
    try:
        _start(folder, env)
        yield {"SLURM_CONF": str(conf)}
        subprocess.run(["scancel", "--user", "root"], env=env, timeout=20, check=False)
    finally:
        _stop(folder)


def _need_packages() -> None:
    if all(shutil.which(name) for name in ("slurmctld", "slurmd", "munged", "sbatch", "squeue")):
        if os.getuid() == 0:
            return
        pytest.skip("a cluster of one's own needs root")
    if os.getuid() or not shutil.which("apt-get"):
        pytest.skip("Slurm is not installed, and only root can install it with apt-get")
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], install):
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
        if ended.returncode:
            pytest.skip(f"{' '.join(command[:2])} failed: {ended.stderr.strip().splitlines()[-1:]}")


def _start(folder: Path, env: dict[str, str]) -> None:
    key, run = folder / "munge" / "key", folder / "run"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    munged = [
        "munged",
        "--force",
        f"--key-file={key}",
        f"--socket={run}/munge.sock",
        f"--pid-file={run}/munged.pid",
        f"--log-file={folder}/log/munged.log",
        f"--seed-file={folder}/munge/seed",
    ]
    for command in (munged, ["slurmctld", "-i"], ["slurmd"]):
        subprocess.run(command, env=env, check=True, timeout=30, capture_output=True)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        asked = subprocess.run(["timeout", "3", "sinfo", "-h", "-o", "%T"], env=env, capture_output=True, text=True)
        if asked.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    raise RuntimeError(f"the node did not come up: {(folder / 'log' / 'slurmctld.log').read_text()[-2000:]}")


def _stop(folder: Path) -> None:
    """End the daemons that this process started, by their own process ids."""
    for name in DAEMONS:
        file = folder / "run" / f"{name}.pid"
        if not file.exists():
            continue
        pid = int(file.read_text())
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 15
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

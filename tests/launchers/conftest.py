"""Clusters on this machine, started for the tests and stopped after them: Slurm of one node, Ray of
two.

Slurm comes from Debian's packages and needs no systemd. The nodes of Ray are network namespaces,
each with an address of its own; they share the files of this machine.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.launchers.clusters import ended_with_us
from tests.launching import end_all

PACKAGES = ("slurm-wlm", "slurmctld", "slurmd", "slurm-client", "munge")
SECONDS = 60  # for the node to come up
LARGEST = 4  # jobs of an array

# No accounting: Slurm forgets, and sacct answers nothing, as on many small clusters. cred_expire: a
# requeued job starts in seconds, not minutes. linuxproc: no control groups are needed.
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
MaxArraySize={largest}
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
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=10
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=2
"""


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
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
    ports = {"port": _free_port(), "other": _free_port()}
    conf.write_text(CONF.format(host=host, folder=folder, largest=LARGEST, **ports))
    env = {**os.environ, "SLURM_CONF": str(conf)}
    with ended_with_us("slurm", folder):
        _start(folder, env)
        yield {"SLURM_CONF": str(conf)}


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
        asked = subprocess.run(
            ["timeout", "3", "sinfo", "-h", "-o", "%T"], env=env, capture_output=True, text=True
        )
        if asked.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    raise RuntimeError(
        f"the node did not come up: {(folder / 'log' / 'slurmctld.log').read_text()[-2000:]}"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class RayCluster:
    """Two nodes of one core each; what is started on the first finds them."""

    nodes: tuple[str, str]  #: network namespaces
    address: str
    #: variables with which a command may use the cluster: its clients must know a token
    env: dict[str, str]
    folder: Path  #: where its processes stand and write

    def on(self, node: int) -> list[str]:
        """What to put before a command that is to run on a node."""
        return ["ip", "netns", "exec", self.nodes[node]]

    def processes(self, node: int) -> list[int]:
        """All processes of a node."""
        return [int(pid) for pid in _ip("netns", "pids", self.nodes[node]).split()]

    def start_node(self, node: int) -> None:
        """Start Ray on a node; returns when it can run tasks."""
        start = [sys.executable, "-m", "ray.scripts.scripts", "start"]
        head = ["--head", f"--temp-dir={self.folder}", "--include-dashboard=false"]
        role = [f"--address={self.address}"] if node else head
        own = [f"--node-ip-address={_address(node)}", "--num-cpus=1", "--disable-usage-stats"]
        ended = subprocess.run(
            [*self.on(node), *start, *role, *own], cwd=self.folder, env={**os.environ, **self.env},
            timeout=240, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if ended.returncode:
            raise RuntimeError(f"the node did not come up: {ended.stdout[-2000:]}")

    def end_node(self, node: int) -> None:
        """Kill all that runs on a node, as a power cut does."""
        while alive := self.processes(node):
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    if not importlib.util.find_spec("hydra_plugins.hydra_ray_launcher"):
        pytest.skip("hydra-ray-launcher is not installed; make launcher-test installs it")
    if os.getuid() or not shutil.which("ip"):
        pytest.skip("nodes in network namespaces need root and iproute2")
    mark = f"{os.getpid():x}"
    nodes = (f"dgb{mark}a", f"dgb{mark}b")
    # not pytest's: the path of a socket has at most 107 letters
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    cluster = RayCluster(nodes, f"{_address(0)}:6379", env, folder)
    with ended_with_us("ray", folder, *nodes):
        try:
            for node in nodes:
                _ip("netns", "add", node)
                _ip("-n", node, "link", "set", "lo", "up")
            _ip(
                "link",
                "add",
                "eth0",
                "netns",
                nodes[0],
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                nodes[1],
            )
            for number, node in enumerate(nodes):
                _ip("-n", node, "address", "add", f"{_address(number)}/24", "dev", "eth0")
                _ip("-n", node, "link", "set", "eth0", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        for number in range(2):
            cluster.start_node(number)
        yield cluster


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _address(node: int) -> str:
    return f"10.77.0.{node + 1}"

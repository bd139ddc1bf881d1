"""How large jobs are: packed together where they are short, split where they are long, by what they occupy here.

A job is split along lists of its grid, trials, draws and folds, whose parts do not need one another. What this machine,
or this process's share of it, has to train on is found out without importing torch.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench.errors import DgbenchError
from dgbench.plan.search import scheme_of
from dgbench.plan.studies import Planner, grid_lists
from dgbench.sweeps.costs import Left, Speeds, Workload

SAFE = 0.5  # part of a launcher's time limit that a job may be expected to take: a guess can be wrong by a factor
CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # "QUOTA PERIOD" or "max PERIOD", where a container limits its cores
Axes = dict[str, list[Any]]  #: key -> values; a job is their product
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")


def cores() -> int:
    """CPU cores that this process may use at a time: its affinity mask, and the limit of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CGROUP_LIMIT.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroup, or "max"
        return allowed


def gpus() -> list[str]:
    """Names of the visible CUDA devices as ``CUDA_VISIBLE_DEVICES`` takes them; none without NVIDIA's driver."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return listed.stdout.split() if listed.returncode == 0 else []


@dataclass(frozen=True)
class JobSize:
    """How large the jobs of a launcher are to be, and what each one occupies.

    Args:
        runs: most runs that are packed together.
        packs: seconds up to which jobs are packed together.
        splits: seconds beyond which a job is split.
        queue: whether the launcher has a queue, whose jobs these are.
        gpus, cores: of one job.
    """

    runs: int | None = None
    packs: float | None = None
    splits: float | None = None
    queue: bool = False
    gpus: float = 0
    cores: int = 1

    @staticmethod
    def asked(config: DictConfig) -> JobSize:
        """What the configuration of a sweep asks for; jobs of a command without ``sweep`` stay as they are."""
        launcher: Mapping[str, Any] = OmegaConf.to_container(config.hydra.launcher, resolve=False)  # type: ignore[assignment]
        runs, hours = (OmegaConf.select(config, f"sweep.{key}") for key in ("runs_per_job", "hours_per_job"))
        if "timeout_min" in launcher:
            limit = launcher["timeout_min"]
            whole = limit is None or runs is not None or "sweep" not in config
            safe = None if whole else SAFE * 60 * limit
            own = None if hours is None else 3600 * hours
            occupied = launcher["nodes"] or 1
            n_gpus, n_cores = occupied * (launcher["gpus_per_node"] or 0), occupied * (launcher["cpus_per_task"] or 1)
            return JobSize(runs, own, own or safe, True, n_gpus, n_cores)
        device = str(OmegaConf.select(config, "trainer.device"))
        return JobSize.alone(device, launcher.get("per_gpu", 1), launcher.get("threads"))

    @staticmethod
    def alone(device: str, per_gpu: int = 1, threads: int | None = None) -> JobSize:
        """A process of this machine.

        Args:
            device: ``trainer.device``.
            per_gpu: processes that share a GPU.
            threads: of the process; None for as many as there are cores.
        """
        found = gpus() if device not in ("cpu", "mps") else []
        return JobSize(gpus=1 / per_gpu if found else 0, cores=threads or cores())

    @property
    def device(self) -> str:
        """What a job trains on."""
        return "gpu" if self.gpus else "cpu"

    @property
    def can_clock(self) -> bool:
        """Whether the speed on this machine says something about the jobs."""
        return not (self.queue and self.gpus) or bool(gpus())

    @property
    def by_time(self) -> bool:
        """Whether expected times matter."""
        return self.packs is not None or self.splits is not None


@dataclass(frozen=True)
class SizedJob:
    """A job of a sweep, or a part of one.

    Args:
        job: position of the job.
        extra: overrides that make it a part of the job.
        runs: that are left to train.
        seconds: expected; None where that is not known.
    """

    job: int
    extra: tuple[str, ...]
    runs: int
    seconds: float | None


def sized(jobs: Sequence[Sequence[str]], planner: Planner, size: JobSize, speeds: Speeds) -> list[SizedJob]:
    """Jobs, in parts where they are expected to take too long; a job that is refused stays one, and fails alone.

    Args:
        jobs: overrides of each.
        planner: plans their studies.
        size: that the jobs are to have.
        speeds: of what never ran.
    """
    workload = Workload(planner)
    left: list[Left | None] = []
    for words in jobs:
        try:
            left.append(workload.add(words))
        except DgbenchError:
            left.append(None)
    if size.by_time:
        workload.clock(speeds)
    return sized_left(jobs, left, workload, size)


def sized_left(
    jobs: Sequence[Sequence[str]], left: Sequence[Left | None], workload: Workload, size: JobSize
) -> list[SizedJob]:
    """:func:`sized` of jobs that were counted; None of ``left`` where one was refused."""
    found = []
    for i, (words, own) in enumerate(zip(jobs, left, strict=True)):
        if own is None:
            found.append(SizedJob(i, (), 1, None))
            continue
        seconds = workload.seconds(own.minibatches)
        if size.splits is None or seconds is None or seconds <= size.splits:
            found.append(SizedJob(i, (), own.runs, seconds))
            continue
        found += _parts(i, words, axes_of(workload.planner, words), workload, size.splits)
    return found


def _parts(job: int, words: Sequence[str], axes: Axes, workload: Workload, most: float) -> list[SizedJob]:
    known: dict[tuple[str, ...], SizedJob] = {}

    def seconds(extra: Sequence[str]) -> float | None:
        left = Workload(workload.planner).add([*words, *extra])
        own = workload.seconds(left.minibatches)
        known[tuple(extra)] = SizedJob(job, tuple(extra), left.runs, own)
        return own

    return [known[tuple(extra)] for extra in split(axes, seconds, most)]


def packed(jobs: Sequence[SizedJob], size: JobSize) -> list[range]:
    """Positions of neighbors that go together into one job of the queue, in their order.

    Those whose time is not known are not packed by time; one that is larger than the size stays alone.
    """
    if size.runs is None and size.packs is None:
        return [range(i, i + 1) for i in range(len(jobs))]
    found: list[range] = []
    first, runs, seconds = 0, 0, 0.0
    for i, job in enumerate(jobs):
        own = job.seconds if job.seconds is not None else float("inf")
        too_many = size.runs is not None and runs + job.runs > size.runs
        too_long = size.packs is not None and seconds + own > size.packs
        if i > first and (too_many or too_long):
            found.append(range(first, i))
            first, runs, seconds = i, 0, 0.0
        runs, seconds = runs + job.runs, seconds + own
    return [*found, range(first, len(jobs))] if jobs else []


def axes_of(planner: Planner, words: Sequence[str]) -> Axes:
    """The lists that a job can be split along. Folds come last: those of one study train fastest together.

    A search that trains its chosen draw again chooses among all draws of a fold: it is split by folds alone.

    Raises:
        ConfigError, DataError, WeightsError: the job cannot work.
    """
    composed = planner.compose(words)
    found: Axes = {f"++grid.{key}": list(values) for key, values in grid_lists(composed["grid"]).items()}
    scheme = scheme_of(composed)
    if scheme is not None:
        found |= {f"hparams.scheme.{key}": numbers for key, numbers in scheme.independent().items()}
    folds = {tuple(fold.name for fold in study.folds) for study in planner.studies(words)}
    if len(folds) == 1:
        found["protocol.folds"] = [int(name) if name.isdigit() else name for name in folds.pop()]
    return {key: values for key, values in found.items() if len(values) > 1}


def split(axes: Axes, seconds: Callable[[Sequence[str]], float | None], most: float) -> list[list[str]]:
    """What each part adds to the words of its job; one part without words where the job is short enough.

    Args:
        axes: of the job.
        seconds: expected of the job with more words; None where that is not known.
        most: seconds that a part should take; one that trains a single model may take more.
    """

    def parts(chosen: Mapping[str, list[Any]]) -> list[list[str]]:
        words = [f"{key}={_listed(values)}" for key, values in chosen.items()]
        expected = seconds(words)
        longer = [key for key, values in axes.items() if len(chosen.get(key, values)) > 1]
        if expected is None or expected <= most or not longer:
            return [words]
        values = chosen.get(longer[0], axes[longer[0]])
        n = min(len(values), math.ceil(expected / most))
        ends = [round(i * len(values) / n) for i in range(n + 1)]
        chunks = [values[first:end] for first, end in pairwise(ends)]
        return [words for chunk in chunks for words in parts({**chosen, longer[0]: chunk})]

    return parts({})


def _listed(values: Sequence[Any]) -> str:
    """A list as Hydra reads it."""
    plain = [value if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps(value) for value in values]
    return f"[{','.join(plain)}]"

"""What jobs have left to train, how long that takes, and which of them a queue gets as one.

No image is decoded for it, and a speed is that of runs that trained. What this machine, or this
process's share of it, has to train on is found out without importing torch.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from dgbench.errors import DgbenchError
from dgbench.plan.cost import Cost
from dgbench.plan.folds import Fold
from dgbench.plan.search import Halving
from dgbench.plan.studies import PlannedStudy, Planner
from dgbench.records.locks import is_locked
from dgbench.records.status import (
    FAILED,
    INTERRUPTED,
    RUNNING,
    STOPPED,
    is_done,
    read_beat,
    read_status,
)

SAMPLES = 30  # runs that a mean speed or size is taken from
# "QUOTA PERIOD" or "max PERIOD", where a container limits its cores
CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")

Kind = tuple[str, ...]  #: dataset, algorithm, network, tuning, sharpness


# ---- what is left


@dataclass
class KindLeft:
    """The models of one algorithm over one dataset and network, which cost the same."""

    algorithm: str
    studies: int = 0
    models: Counter[str] = field(default_factory=Counter)
    # of one environment each: what a step costs grows with the environments
    minibatches_left: int = 0
    # minibatches per second, of all models that train together
    rates: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # bytes of a finished run
    again: int = 0  # models that searches train once they have chosen
    seeds: set[int] = field(default_factory=set)  # those of searches, before a trial adds to them
    # some studies with models to train, over the same images
    left: list[PlannedStudy] = field(default_factory=list)
    largest: PlannedStudy | None = None  # of all those studies, one with the largest batch size
    cost: Cost | None = None  # of a model, where it was counted
    guess: float | None = None  # seconds that what is left takes on a card whose speed is assumed

    @property
    def typical_first(self) -> list[PlannedStudy]:
        """Sort ``left``, first the study with a batch size nearest the mean, as a typical draw."""
        mean = fmean(study.spec.hparams["batch_size"] for study in self.left)
        return sorted(self.left, key=lambda study: abs(study.spec.hparams["batch_size"] - mean))

    @property
    def seconds_per_minibatch(self) -> float | None:
        """Compute the mean seconds of a minibatch of one environment; None if no speed is known."""
        return fmean(1 / rate for rate in self.rates) if self.rates else None

    @property
    def seconds(self) -> float | None:
        """Compute the seconds that the rest takes in one process; None if no speed is known."""
        if not self.minibatches_left:
            return 0.0
        seconds = self.seconds_per_minibatch
        return None if seconds is None else self.minibatches_left * seconds

    @property
    def flops(self) -> float | None:
        """Compute the operations of the rest, evaluations included; None if none were counted."""
        if self.cost is None:
            return None
        return self.minibatches_left * self.cost.per_minibatch(self.typical_first[0])

    @property
    def bytes(self) -> float | None:
        """Compute the disk that the rest takes; None if no run is done, and none was counted."""
        to_train = self.models.total() - self.models["done"]
        if not to_train:
            return 0.0
        if self.sizes:
            return to_train * fmean(self.sizes)
        return to_train * self.cost.disk if self.cost else None

    def add(self, study: PlannedStudy, folds: Sequence[Fold]) -> tuple[int, int]:
        """Add folds of a study.

        Returns:
            how many of the folds are not done, and how many minibatches these lack.
        """
        steps = int(study.spec.training["steps"])
        begun = study.folder.is_dir()
        halving = study.search is not None and isinstance(study.search.scheme, Halving)
        runs = minibatches = 0
        per_step = study.config["trainer"].get("environments_per_step")
        for fold in folds:
            run = MISSING
            if begun:
                folder = study.run_folder(fold)
                run = _state(folder, halving)
            self.models[run.state] += 1
            n_envs = per_step or len(fold.training)
            if run.state != "done":
                runs += 1
                minibatches += max(0, steps - run.step) * n_envs
            elif len(self.sizes) < SAMPLES:
                files = [file for file in folder.rglob("*") if file.is_file()]
                self.sizes.append(sum(file.stat().st_size for file in files))
            if run.rate and len(self.rates) < SAMPLES:
                self.rates.append(run.rate * n_envs)
        self.minibatches_left += minibatches
        if study.search:
            self.seeds.add(int(study.search.base.get("seed", study.spec.seed)))
        self.again += study.repeats * len(folds)
        if runs and (not self.left or study.dataset is self.left[0].dataset):
            if len(self.left) < SAMPLES:
                self.left.append(study)
            self.largest = max(
                self.largest or study, study, key=lambda study: study.spec.hparams["batch_size"]
            )
        return runs, minibatches


class RunState(NamedTuple):
    """How far a run is."""

    state: str  #: done, running, failed, stopped or missing
    step: int  #: last that is known
    rate: float | None  #: models times steps per second; None if unknown


MISSING = RunState("missing", 0, None)


def _state(folder: Path, halving: bool) -> RunState:
    """Read how far a run is.

    Args:
        folder: of the run.
        halving: whether its search is one that stops draws, so that one which was stopped has no
            more to do.
    """
    word = read_status(folder).word
    beat = read_beat(folder)
    if word == RUNNING:
        state = "running" if is_locked(folder) else "stopped"
    elif word == STOPPED:
        state = "done" if halving else "stopped"
    elif is_done(folder):
        state = "done"
    else:
        state = {FAILED: "failed", INTERRUPTED: "stopped"}.get(word, "missing")
    if beat is None:
        return RunState(state, 0, None)
    rate = None if beat.steps_per_s is None else beat.steps_per_s * beat.runs
    return RunState(state, beat.step, rate)


@dataclass
class Left:
    """What one job has left: runs by the folder of their study, and minibatches of one environment
    by kind.
    """

    runs_of: Counter[Path] = field(default_factory=Counter)
    minibatches: Counter[Kind] = field(default_factory=Counter)

    @property
    def runs(self) -> int:
        """Count the runs of all studies."""
        return self.runs_of.total()


@dataclass
class Workload:
    """What jobs have left, by kind of model and by job."""

    planner: Planner
    #: refuses what cannot work; None believes what was planned
    judge: Callable[[PlannedStudy], None] | None = None
    kinds: dict[Kind, KindLeft] = field(default_factory=dict)
    #: a study with models to train of each dataset and each file of initial weights
    needing: dict[tuple[int, int], PlannedStudy] = field(default_factory=dict)
    #: folds of the study in a folder; jobs may share a study
    _seen: dict[Path, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, words: Sequence[str]) -> Left:
        """Count what a job has left.

        A fold that several jobs train counts for the first of them alone.

        Raises:
            ConfigError, DataError, WeightsError: a study that cannot work.
        """
        job_left = Left()
        for study in self.planner.studies(words):
            if self.judge:
                self.judge(study)
            counted_folds = self._seen[study.folder]
            new = [fold for fold in study.folds if fold.name not in counted_folds]
            if new:
                groups = ("dataset", "algorithm", "backbone", "tuning", "sharpness")
                kind = tuple(str(study.config[group]["name"]) for group in groups)
                models = self.kinds.setdefault(kind, KindLeft(study.spec.algorithm))
                models.studies += not counted_folds
                runs, minibatches = models.add(study, new)
                if runs:
                    self.needing.setdefault((id(study.info), id(study.weights)), study)
                    job_left.runs_of[study.folder] += runs
                job_left.minibatches[kind] += minibatches
                counted_folds.update(fold.name for fold in new)
        return job_left

    def seconds(self, left: Left) -> float | None:
        """Estimate the seconds that a job takes in one process; None if a speed is not known."""
        total = 0.0
        for kind, minibatches in left.minibatches.items():
            seconds = self.kinds[kind].seconds_per_minibatch
            if minibatches and seconds is None:
                return None
            total += minibatches * (seconds or 0.0)
        return total


# ---- what a job occupies


def cores() -> int:
    """Count the CPU cores that this process may use: affinity mask, limit of its container."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    try:
        quota, period = CGROUP_LIMIT.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroup, or "max"
        return allowed


def gpus() -> list[str]:
    """List the visible CUDA devices by name, as ``CUDA_VISIBLE_DEVICES`` takes them."""
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
    """How large the jobs of a launcher are to be, and what each one occupies."""

    runs: int | None = None  #: most runs that are packed together
    queue: bool = False  #: whether the launcher has a queue, whose jobs these are
    #: of one job
    gpus: float = 0
    cores: int = 1

    @staticmethod
    def asked(config: DictConfig) -> JobSize:
        """Read the job size that a configuration asks for.

        Jobs of a command without ``sweep`` stay as they are.
        """
        launcher: Mapping[str, Any] = OmegaConf.to_container(config.hydra.launcher, resolve=False)  # type: ignore[assignment]
        if "timeout_min" not in launcher:
            device = str(OmegaConf.select(config, "trainer.device"))
            return JobSize.alone(device, launcher.get("per_gpu", 1), launcher.get("threads"))
        nodes = launcher["nodes"] or 1
        return JobSize(
            runs=OmegaConf.select(config, "sweep.runs_per_job"),
            queue=True,
            gpus=nodes * (launcher["gpus_per_node"] or 0),
            cores=nodes * (launcher["cpus_per_task"] or 1),
        )

    @staticmethod
    def alone(device: str, per_gpu: int = 1, threads: int | None = None) -> JobSize:
        """Return the size of a job that is one process of this machine.

        Args:
            device: ``trainer.device``.
            per_gpu: processes that share a GPU.
            threads: of the process; None for as many as there are cores.
        """
        on_gpu = device in ("gpu", "cuda") or (device == "auto" and gpus())
        return JobSize(gpus=1 / per_gpu if on_gpu else 0, cores=threads or cores())


@dataclass(frozen=True)
class SizedJob:
    """A job of a sweep."""

    words: Sequence[str]  #: its overrides
    runs: int = 1  #: that are left to train


def sized_jobs(jobs: Sequence[Sequence[str]], workload: Workload) -> list[SizedJob]:
    """Count the runs that each job has left; a refused one counts as one run, and fails alone."""
    sized = []
    for words in jobs:
        try:
            sized.append(SizedJob(words, workload.add(words).runs))
        except DgbenchError:
            sized.append(SizedJob(words))
    return sized


def packed(runs: Sequence[int], size: JobSize) -> list[range]:
    """Group the positions of neighboring jobs that become one job of the queue, in their order.

    A job that alone has more runs than the size allows stays alone.

    Args:
        runs: that each job has left to train.
        size: asked for; without a number of runs nothing is packed.
    """
    if size.runs is None:
        return [range(i, i + 1) for i in range(len(runs))]
    packs: list[range] = []
    first = total = 0
    for i, n_runs in enumerate(runs):
        total += n_runs
        if i > first and total > size.runs:
            packs.append(range(first, i))
            first = i
            total = n_runs
    if runs:
        packs.append(range(first, len(runs)))
    return packs

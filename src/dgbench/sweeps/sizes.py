"""What jobs have left to train, how long that takes, and how large jobs are made: packed where
short, split where long.

No image is decoded for it. A speed is that of runs that trained, or is clocked once and kept, so
that a plan and the command that follows it size jobs alike. What this machine, or this process's
share of it, has to train on is found out without importing torch.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench.errors import DgbenchError, reason_of
from dgbench.plan.cost import Cost
from dgbench.plan.folds import Fold
from dgbench.plan.overrides import grammar
from dgbench.plan.search import Halving, scheme_of
from dgbench.plan.studies import PlannedStudy, Planner, grid_lists
from dgbench.records.files import read_json, write_whole
from dgbench.records.locks import is_locked
from dgbench.records.spec import digest
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
SPEEDS = ".jobs/speeds.json"  # in the folder of a sweep; only plans read it
# part of a launcher's time limit that a job may be expected to take: a guess can be wrong by a
# factor
SAFE = 0.5
# "QUOTA PERIOD" or "max PERIOD", where a container limits its cores
CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")

Kind = tuple[str, ...]  #: dataset, algorithm, network, tuning, sharpness
Axes = dict[str, list[Any]]  #: key -> values; a job is their product
Clock = Callable[[Sequence[PlannedStudy]], float]


# ---- what is left
# ---------------------------------------------------------------------------------------------------


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
        """The studies of ``left``, first the one with a batch size nearest their mean: it costs
        what a draw does.
        """
        mean = fmean(study.spec.hparams["batch_size"] for study in self.left)
        return sorted(self.left, key=lambda study: abs(study.spec.hparams["batch_size"] - mean))

    @property
    def seconds_per_minibatch(self) -> float | None:
        """Mean seconds, over models, of a minibatch of one environment; None where no speed is
        known.
        """
        return fmean(1 / rate for rate in self.rates) if self.rates else None

    @property
    def seconds(self) -> float | None:
        """Seconds that what is left takes in one process; None where no speed is known."""
        if not self.minibatches_left:
            return 0.0
        seconds = self.seconds_per_minibatch
        return None if seconds is None else self.minibatches_left * seconds

    @property
    def flops(self) -> float | None:
        """Operations that what is left takes, evaluations included; None where they were not
        counted.
        """
        return (
            self.minibatches_left * self.cost.per_minibatch(self.typical_first[0])
            if self.cost
            else None
        )

    @property
    def bytes(self) -> float | None:
        """Disk that what is left will take; None where no run is done, and none was counted."""
        to_train = self.models.total() - self.models["done"]
        if not to_train:
            return 0.0
        if self.sizes:
            return to_train * fmean(self.sizes)
        return to_train * self.cost.disk if self.cost else None

    def add(self, study: PlannedStudy, folds: Sequence[Fold]) -> tuple[int, int]:
        """Add folds of a study; return how many of them are not done, and how many minibatches
        these lack.
        """
        steps, begun = int(study.spec.training["steps"]), study.folder.is_dir()
        halving = study.search is not None and isinstance(study.search.scheme, Halving)
        runs = minibatches = 0
        per_step = study.config["trainer"].get("environments_per_step")
        for fold in folds:
            state, step, rate = "missing", 0, None
            if begun:
                folder = study.run_folder(fold)
                state, step, rate = _state(folder, halving)
            self.models[state] += 1
            if state != "done":
                runs += 1
                minibatches += max(0, steps - step) * (per_step or len(fold.training))
            elif len(self.sizes) < SAMPLES:
                self.sizes.append(
                    sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
                )
            if rate and len(self.rates) < SAMPLES:
                self.rates.append(rate * (per_step or len(fold.training)))
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


def _state(folder: Path, halving: bool) -> tuple[str, int, float | None]:
    """Read the state of a run, its last known step, and its speed in models times steps per second
    (None if unknown).

    Args:
        folder: of the run.
        halving: whether its search is one that stops draws, so that one which was stopped has no
            more to do.
    """
    word, beat = read_status(folder).word, read_beat(folder)
    if word == RUNNING:
        state = "running" if is_locked(folder) else "stopped"
    elif word == STOPPED:
        state = "done" if halving else "stopped"
    else:
        state = (
            "done"
            if is_done(folder)
            else {FAILED: "failed", INTERRUPTED: "stopped"}.get(word, "missing")
        )
    rate = beat.steps_per_s * beat.runs if beat and beat.steps_per_s is not None else None
    return state, beat.step if beat else 0, rate


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
        """Count what a job has left; a fold that several jobs train counts for the first of them
        alone.

        Raises:
            ConfigError, DataError, WeightsError: a study that cannot work.
        """
        job_left = Left()
        for study in self.planner.studies(words):
            if self.judge:
                self.judge(study)
            counted_folds = self._seen[study.folder]
            if new := [fold for fold in study.folds if fold.name not in counted_folds]:
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

    def clock(self, speeds: Speeds) -> None:
        """Look up or measure the speed of the kinds of which nothing ran yet."""
        for kind in self.kinds.values():
            if kind.seconds is None and kind.left:
                rate = speeds.of(kind.typical_first)
                kind.rates += [] if rate is None else [rate]

    def seconds(self, left: Left) -> float | None:
        """Estimate the seconds that a job takes in one process; None where the speed of some of it
        is not known.
        """
        total = 0.0
        for kind, minibatches in left.minibatches.items():
            seconds = self.kinds[kind].seconds_per_minibatch
            if minibatches and seconds is None:
                return None
            total += minibatches * (seconds or 0.0)
        return total


# ---- speeds
# ---------------------------------------------------------------------------------------------------------


def clocked_here(studies: Sequence[PlannedStudy]) -> float:
    """Measure minibatches per second of some studies of one kind on this machine, with evaluations;
    loads torch.
    """
    from dgbench.sweeps.probe import minibatches_per_second

    return minibatches_per_second(studies)


@dataclass
class Speeds:
    """Clocks studies, and remembers what prevents it, as images or weights that are not on this
    machine.
    """

    #: minibatches per second of studies of one kind; None takes only what was kept
    clock: Clock | None
    folder: Path  #: of the sweep, where speeds are kept
    device: str = "cpu"  #: what the jobs train on, ``gpu`` or ``cpu``: each has speeds of its own
    anew: bool = False  #: clock also what was kept
    _reasons: dict[tuple[str, str], str] = field(default_factory=dict, init=False)

    def of(self, studies: Sequence[PlannedStudy]) -> float | None:
        """Look up or measure minibatches of one environment per second, of all models together;
        None if that fails.
        """
        key, images = self._key(studies[0]), (studies[0].info.name, studies[0].spec.backbone)
        kept_rate = None if self.anew else self._stored_speeds().get(key)
        if (
            kept_rate or self.clock is None or images in self._reasons
        ):  # what one algorithm lacks, all lack
            return kept_rate
        try:
            rate = self.clock(studies)
        except (
            Exception
        ) as error:  # a device whose memory is full, say: a plan without times is still a plan
            self._reasons[images] = reason_of(error)
        else:
            with suppress(OSError):  # a folder that cannot be written keeps no speeds
                (self.folder / SPEEDS).parent.mkdir(parents=True, exist_ok=True)
                write_whole(
                    self.folder / SPEEDS,
                    json.dumps({**self._stored_speeds(), key: rate}, indent=1) + "\n",
                )
            return rate
        return None

    def _key(self, study: PlannedStudy) -> str:
        chosen = [study.config[group]["name"] for group in ("algorithm", "tuning")]
        chosen += [study.config["sharpness"]["name"]] if "_target_" in study.spec.sharpness else []
        shapes = [
            study.info.name,
            study.info.image,
            study.spec.backbone,
            study.spec.hparams["batch_size"],
        ]
        trainer = study.config["trainer"]
        evaluated = [
            trainer[key] for key in ("steps", "eval_every", "eval_subsets", "eval_batch_size")
        ]
        return digest([self.device, *chosen, *shapes, study.config["execution"], *evaluated])

    def _stored_speeds(self) -> dict[str, float]:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            return {
                key: float(rate)
                for key, rate in read_json(self.folder / SPEEDS).items()
                if rate > 0
            }
        return {}

    def notes(self) -> list[str]:
        """List a line for every dataset and network that could not be clocked."""
        return [
            f"not clocked, {dataset} with {network}: {reason}"
            for (dataset, network), reason in self._reasons.items()
        ]


# ---- what a job occupies
# --------------------------------------------------------------------------------------------


def cores() -> int:
    """Count the CPU cores that this process may use at a time: its affinity mask, and the limit of
    its container.
    """
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = CGROUP_LIMIT.read_text().split()
        return max(1, min(allowed, int(quota) // int(period)))
    except (OSError, ValueError):  # no cgroup, or "max"
        return allowed


def gpus() -> list[str]:
    """List the visible CUDA devices by name as ``CUDA_VISIBLE_DEVICES`` takes them; none without
    NVIDIA's driver.
    """
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
    packs: float | None = None  #: seconds up to which jobs are packed together
    splits: float | None = None  #: seconds beyond which a job is split
    queue: bool = False  #: whether the launcher has a queue, whose jobs these are
    #: of one job
    gpus: float = 0
    cores: int = 1

    @staticmethod
    def asked(config: DictConfig) -> JobSize:
        """Read the job size that a configuration asks for; jobs of a command without ``sweep`` stay
        as they are.
        """
        launcher: Mapping[str, Any] = OmegaConf.to_container(config.hydra.launcher, resolve=False)  # type: ignore[assignment]
        if "timeout_min" not in launcher:
            device = str(OmegaConf.select(config, "trainer.device"))
            return JobSize.alone(device, launcher.get("per_gpu", 1), launcher.get("threads"))
        runs, hours = (
            OmegaConf.select(config, f"sweep.{key}") for key in ("runs_per_job", "hours_per_job")
        )
        limit, nodes = launcher["timeout_min"], launcher["nodes"] or 1
        packs = None if hours is None else 3600 * hours
        splits = packs or (
            None
            if limit is None or runs is not None or "sweep" not in config
            else SAFE * 60 * limit
        )
        n_gpus, n_cores = (
            nodes * (launcher["gpus_per_node"] or 0),
            nodes * (launcher["cpus_per_task"] or 1),
        )
        return JobSize(runs, packs, splits, True, n_gpus, n_cores)

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

    @property
    def device(self) -> str:
        """What a job trains on."""
        return "gpu" if self.gpus else "cpu"

    @property
    def can_clock(self) -> bool:
        """Whether the speed on this machine says something about the jobs."""
        return not self.gpus or bool(gpus())

    @property
    def by_time(self) -> bool:
        """Whether expected times matter."""
        return self.packs is not None or self.splits is not None


# ---- splitting and packing
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A job of a sweep, or a part of one."""

    words: Sequence[str]  #: its overrides
    extra: tuple[str, ...] = ()  #: those of them that make it a part of a job
    runs: int = 1  #: that are left to train
    seconds: float | None = None  #: expected; None where that is not known


def parts_of_jobs(
    jobs: Sequence[Sequence[str]], workload: Workload, size: JobSize, speeds: Speeds
) -> list[list[Part]]:
    """Split each job into parts: one where it is not expected to take too long, or is refused and
    fails alone.
    """
    left_by_job: list[Left | None] = []
    for words in jobs:
        try:
            left_by_job.append(workload.add(words))
        except DgbenchError:
            left_by_job.append(None)
    if size.by_time:
        workload.clock(speeds)
    return [
        [Part(words)] if job_left is None else parts(words, job_left, workload, size.splits)
        for words, job_left in zip(jobs, left_by_job, strict=True)
    ]


def parts(words: Sequence[str], left: Left, workload: Workload, limit: float | None) -> list[Part]:
    """Split a job along its lists, until each part takes at most ``limit`` seconds or trains a
    single model.

    Args:
        words: overrides of the job.
        left: what the job has left.
        workload: that it was counted in.
        limit: None splits nothing.
    """
    seconds = workload.seconds(left)
    if limit is None or seconds is None or seconds <= limit:
        return [Part(words, (), left.runs, seconds)]
    axes = _axes(workload.planner, words)

    def split(chosen: Axes) -> list[Part]:
        extra = tuple(f"{key}={grammar(values)}" for key, values in chosen.items())
        part_left = Workload(workload.planner).add([*words, *extra])
        seconds = workload.seconds(part_left)
        longer = {key: values for key, values in {**axes, **chosen}.items() if len(values) > 1}
        if seconds is None or seconds <= limit or not longer:
            return [Part([*words, *extra], extra, part_left.runs, seconds)]
        key, values = next(iter(longer.items()))
        n = min(len(values), math.ceil(seconds / limit))
        ends = [round(i * len(values) / n) for i in range(n + 1)]
        return [
            part
            for first, end in pairwise(ends)
            for part in split({**chosen, key: values[first:end]})
        ]

    return split({})


def _axes(planner: Planner, words: Sequence[str]) -> Axes:
    """List the axes that a job can be split along.

    Folds come last: those of one study train fastest together.

    A search that trains its chosen draw again chooses among all draws of a fold: it is split by
    folds alone.
    """
    composed = planner.compose(words)
    axes: Axes = {
        f"++grid.{key}": list(values) for key, values in grid_lists(composed["grid"]).items()
    }
    if (scheme := scheme_of(composed)) is not None:
        axes |= {f"hparams.scheme.{key}": numbers for key, numbers in scheme.independent().items()}
    folds = {tuple(fold.name for fold in study.folds) for study in planner.studies(words)}
    if len(folds) == 1:
        axes["protocol.folds"] = [int(name) if name.isdigit() else name for name in folds.pop()]
    return axes


def packed(jobs: Sequence[Part], size: JobSize) -> list[range]:
    """Group the positions of neighboring jobs that go together into one job of the queue, in their
    order.

    Those whose time is not known are not packed by time; one that is larger than the size stays
    alone.
    """
    packs: list[range] = []
    first, runs, seconds = 0, 0, 0.0
    for i, job in enumerate(jobs):
        runs, seconds = (
            runs + job.runs,
            seconds + (math.inf if job.seconds is None else job.seconds),
        )
        too_many = size.runs is not None and runs > size.runs
        too_long = size.packs is not None and seconds > size.packs
        if i > first and (too_many or too_long or not (size.runs or size.packs)):
            packs.append(range(first, i))
            first, runs, seconds = i, job.runs, math.inf if job.seconds is None else job.seconds
    return [*packs, range(first, len(jobs))] if jobs else []

"""What a command trains, what of it is done, and what the rest costs: before it starts, or with ``plan=true`` instead.

A table of 100,000 jobs takes seconds: they are not composed one by one, and no image is decoded.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from dgbench.errors import ConfigError
from dgbench.protocols.folds import Fold
from dgbench.records.beats import read_beat
from dgbench.records.durations import duration
from dgbench.records.locks import is_locked
from dgbench.records.status import FAILED, INTERRUPTED, RUNNING, is_done, read_status
from dgbench.sweeps.probing import Speeds, images_of_a_step
from dgbench.training.job import Job
from dgbench.training.jobs import PlannedStudy, Planner

STATES = ("done", "running", "failed", "stopped", "missing")
SAMPLES = 30  # runs that a mean speed or size is taken from


@dataclass
class _Line:
    """The models of one algorithm over one dataset and network, which cost the same."""

    algorithm: str
    studies: int = 0
    models: Counter[str] = field(default_factory=Counter)
    minibatches_left: int = 0  # of one environment each: what a step costs grows with the environments
    rates: list[float] = field(default_factory=list)  # minibatches per second, of all models that train together
    sizes: list[int] = field(default_factory=list)  # bytes of a finished run
    again: int = 0  # models that searches train once they have chosen
    left: list[PlannedStudy] = field(default_factory=list)  # some studies with models to train, over the same images

    @property
    def to_train(self) -> int:
        return self.models.total() - self.models["done"]

    @property
    def seconds(self) -> float | None:
        if not self.minibatches_left:
            return 0.0
        return self.minibatches_left / fmean(self.rates) if self.rates else None

    @property
    def bytes(self) -> float | None:
        if not self.to_train:
            return 0.0
        return self.to_train * fmean(self.sizes) if self.sizes else None


def print_plan(jobs: Sequence[Sequence[str]], planner: Planner, clock: bool, starts: bool) -> None:
    """Jobs and models by algorithm: done, running, failed, stopped, missing; time and disk for the rest.

    Args:
        jobs: overrides of each.
        planner: plans their studies.
        clock: whether to clock what was never trained in these folders; loads torch.
        starts: whether the jobs are about to start.

    Raises:
        DataError: a dataset whose environments must be known is not there.
    """
    lines: dict[tuple[str, ...], _Line] = {}
    seen: dict[str, set[str]] = {}  # folds of the study in a folder; several jobs may each train some
    for words in jobs:
        for study in planner.studies(words):
            known = seen.setdefault(str(study.folder), set())
            new = [fold for fold in study.folds if fold.name not in known]
            if new:
                config = study.config
                kind = tuple(str(config[group]["name"]) for group in ("dataset", "algorithm", "backbone", "tuning"))
                line = lines.setdefault(kind, _Line(kind[1]))
                line.studies += not known
                _count(line, study, new)
                known.update(fold.name for fold in new)
    notes = _images(lines)
    speeds = _speeds() if clock else None
    by_name: dict[str, list[_Line]] = defaultdict(list)
    for line in lines.values():
        by_name[line.algorithm].append(line)
    width = max(12, *(len(name) + 2 for name in by_name))
    _print_titles(width)
    for name, own in by_name.items():
        for line in own:
            if speeds and line.seconds is None:
                rate = speeds.of(line.left)
                line.rates += [] if rate is None else [rate]
        _print_line(name, own, width)
    _print_line("all", list(lines.values()), width)
    again = sum(line.again for line in lines.values())
    if again:
        print(f"Once the searches have chosen, up to {again} models more.")
    print(_explained(len(jobs), clock, starts))
    for note in [*notes, *(speeds.notes() if speeds else [])]:
        print(note)
    sys.stdout.flush()


def _speeds() -> Speeds:
    from dgbench.sweeps.probe import minibatches_per_second

    return Speeds(minibatches_per_second)


def asks_to_clock(how: object) -> bool:
    """Whether ``plan=`` asks to clock what was never trained.

    Raises:
        ConfigError: ``plan`` is neither ``true`` nor ``probe``.
    """
    if how is not True and how != "probe":
        raise ConfigError(f"plan={how} is unknown; write plan=true, or plan=probe to clock what never ran")
    return how == "probe"


def _images(lines: Mapping[tuple[str, ...], _Line]) -> list[str]:
    """Images of a step, once for every dataset: that of the first algorithm with models to train."""
    first: dict[str, PlannedStudy] = {}
    for (dataset, *_), line in lines.items():
        if line.left:
            first.setdefault(dataset, line.left[0])
    return [images_of_a_step(study) for study in first.values()]


def plan_job(job: Job, clock: bool, starts: bool) -> None:
    """The plan of one command without ``-m``.

    Args:
        job: the command.
        clock: whether to clock what was never trained in these folders; loads torch, and the images.
        starts: whether it is about to start.
    """
    print_plan([list(job.words)], job.planner(), clock, starts)


def _count(line: _Line, study: PlannedStudy, folds: Sequence[Fold]) -> None:
    """Take in what of a study's folds is done."""
    steps = int(study.spec.training["steps"])
    before, begun = line.to_train, study.folder.is_dir()
    for fold in folds:
        environments = len(fold.training)
        if not begun:
            line.models["missing"] += 1
            line.minibatches_left += steps * environments
            continue
        folder = study.run_folder(fold)
        state, step, rate = _state(folder)
        line.models[state] += 1
        if state != "done":
            line.minibatches_left += max(0, steps - step) * environments
        if rate and len(line.rates) < SAMPLES:
            line.rates.append(rate * environments)
        if state == "done" and len(line.sizes) < SAMPLES:
            line.sizes.append(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))
    line.again += study.repeats * len(folds)
    same_images = not line.left or study.dataset is line.left[0].dataset
    if line.to_train > before and len(line.left) < SAMPLES and same_images:
        line.left.append(study)


def _state(folder: Path) -> tuple[str, int, float | None]:
    """How a run stands, its last known step, and its speed in models times steps per second."""
    word = read_status(folder).word
    beat = read_beat(folder)
    step = beat.step if beat else 0
    rate = beat.steps_per_s * beat.members if beat and beat.steps_per_s is not None else None
    if word == RUNNING:
        return "running" if is_locked(folder) else "stopped", step, rate
    if is_done(folder):
        return "done", step, rate
    return {FAILED: "failed", INTERRUPTED: "stopped"}.get(word, "missing"), step, rate


def _print_titles(width: int) -> None:
    titles = "".join(f"{title:>9}" for title in ("studies", "models", *STATES))
    print(f"{'algorithm':<{width}}{titles}{'time':>14}{'disk':>10}", flush=True)


def _print_line(name: str, lines: Sequence[_Line], width: int) -> None:
    counted = sum((line.models for line in lines), Counter[str]())
    counts = [sum(line.studies for line in lines), counted.total(), *(counted[state] for state in STATES)]
    time, disk = _sum(line.seconds for line in lines), _sum(line.bytes for line in lines)
    numbers = "".join(f"{count:>9}" for count in counts)
    costs = f"{'?' if time is None else duration(time):>14}{'?' if disk is None else _size(disk):>10}"
    print(f"{name:<{width}}{numbers}{costs}", flush=True)


def _explained(n_jobs: int, clock: bool, starts: bool) -> str:
    jobs = "1 job" if n_jobs == 1 else f"{n_jobs} jobs"
    never_ran = (
        " or, where none ran yet, of a second\nof their steps, evaluations left out."
        if clock
        else "; where it says ?, none ran yet,\nand plan=probe clocks a second of their steps, evaluations left out."
    )
    end = "" if starts else " Nothing was started."
    return f"{jobs}. Time: in one process, at the speed of the runs in these folders{never_ran}{end}"


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _size(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"

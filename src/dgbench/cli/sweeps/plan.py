"""What a command trains, what of it is done, and what the rest costs: before it starts, or with ``plan=true`` instead.

A table of 100,000 jobs takes seconds: they are not composed one by one, and images are looked at only where the
configuration does not tell how many environments, and so models, a study has.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from dgbench.callbacks.claims import is_claimed
from dgbench.callbacks.status import read_status
from dgbench.cli.sweeps.composing import Composed, Composer
from dgbench.cli.sweeps.jobs import Folds, Planned, studies_of
from dgbench.cli.sweeps.probing import Speeds, images_of_a_step
from dgbench.errors import ConfigError
from dgbench.records import PROGRESS_FILE

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
    left: list[Planned] = field(default_factory=list)  # some studies with models to train, over the same images

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


def print_plan(
    jobs: Sequence[Sequence[str]], composer: Composer, place: Callable[[Composed], Path], clock: bool, starts: bool
) -> None:
    """Jobs and models by algorithm: done, running, failed, stopped, missing; time and disk for the rest.

    Args:
        jobs: overrides of each.
        composer: composes them.
        place: folder of a job.
        clock: whether to clock what was never trained in these folders; loads torch.
        starts: whether the jobs are about to start.

    Raises:
        DataError: a dataset whose environments must be known is not there.
    """
    lines: dict[tuple[str, ...], _Line] = {}
    seen: dict[str, set[str]] = {}  # folds of the study in a folder; several jobs may each train some
    folds = Folds()
    for words in jobs:
        for study in studies_of(words, composer, place):
            known = seen.setdefault(str(study.folder), set())
            new = {fold: count for fold, count in folds.of(study.composed).items() if fold not in known}
            if new:
                kind = tuple(
                    str(study.composed[group]["name"]) for group in ("dataset", "algorithm", "backbone", "tuning")
                )
                line = lines.setdefault(kind, _Line(kind[1]))
                line.studies += not known
                _count(line, study, new)
                known.update(new)
    notes = _images(lines, composer)
    speeds = _speeds() if clock else None
    by_name: dict[str, list[_Line]] = defaultdict(list)
    for line in lines.values():
        by_name[line.algorithm].append(line)
    width = max(12, *(len(name) + 2 for name in by_name))
    _print_titles(width)
    for name, own in by_name.items():
        for line in own:
            if speeds and line.seconds is None:
                rate = speeds.of([(composer.load(list(study.words)), study.folder) for study in line.left])
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
    from dgbench.cli.probe import minibatches_per_second

    return Speeds(minibatches_per_second)


def asks_to_clock(how: object) -> bool:
    """Whether ``plan=`` asks to clock also the jobs of a sweep.

    Raises:
        ConfigError: ``plan`` is neither ``true`` nor ``probe``.
    """
    if how is not True and how != "probe":
        raise ConfigError(f"plan={how} is unknown; write plan=true, or plan=probe to clock the jobs of a sweep too")
    return how == "probe"


def _images(lines: Mapping[tuple[str, ...], _Line], composer: Composer) -> list[str]:
    """Images of a step, once for every dataset: that of the first algorithm with models to train."""
    first: dict[str, Planned] = {}
    for (dataset, *_), line in lines.items():
        if line.left:
            first.setdefault(dataset, line.left[0])
    notes = [images_of_a_step(composer.load(list(study.words))) for study in first.values()]
    return [note for note in notes if note]


def plan_command(folder: Path, starts: bool) -> None:
    """The plan of one command without ``-m``, clocked where nothing ran yet.

    Args:
        folder: its output folder.
        starts: whether it is about to start.
    """
    hydra = HydraConfig.get()
    composer = Composer(GlobalHydra.instance().config_loader(), partial(_composed, str(hydra.job.config_name)))
    print_plan([list(hydra.overrides.task)], composer, lambda _: folder, clock=True, starts=starts)


def _composed(name: str, words: list[str]) -> DictConfig:
    return compose(name, words)


def _count(line: _Line, study: Planned, folds: Mapping[str, int]) -> None:
    """Take in what of a study's folds is done; they come with the number of environments that each trains on."""
    steps = int(study.composed["trainer"]["steps"])
    found = _members(study.folder)
    before = line.to_train
    for fold, environments in folds.items():
        folder = found.get(fold)
        state, step, rate = _state(folder) if folder else ("missing", 0, None)
        line.models[state] += 1
        if state != "done":
            line.minibatches_left += max(0, steps - step) * environments
        if rate and len(line.rates) < SAMPLES:
            line.rates.append(rate * environments)
        if state == "done" and folder and len(line.sizes) < SAMPLES:
            line.sizes.append(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))
    line.again += study.repeats * len(folds)
    if line.to_train > before and len(line.left) < SAMPLES and _dataset(study) == _dataset((line.left or [study])[0]):
        line.left.append(study)


def _dataset(study: Planned) -> str:
    return study.composed.contents["dataset"].whole


def _members(study: Path) -> dict[str, Path]:
    """Run folders of a study by fold; where the data were replaced and a fold has two, the younger one."""
    try:
        names = [entry for entry in os.listdir(study) if entry.startswith("fold-")]
    except OSError:
        return {}
    found = [study / name for name in names]
    return {path.name.split("-", 1)[1].rpartition("-")[0]: path for path in sorted(found, key=_age)}


def _age(folder: Path) -> float:
    return folder.stat().st_mtime


def _state(folder: Path) -> tuple[str, int, float | None]:
    """How a run stands, its last known step, and its speed in models times steps per second."""
    mark = read_status(folder).partition(" ")[0]
    step, rate = 0, None
    with suppress(OSError, ValueError, KeyError, TypeError):  # none yet, or cut short by a full disk
        beat = json.loads((folder / PROGRESS_FILE).read_text())
        step, rate = int(beat["step"]), float(beat["steps_per_s"]) * int(beat["members"])
    if mark == "RUNNING":
        return "running" if is_claimed(folder) else "stopped", step, rate
    return {"DONE": "done", "FAILED": "failed"}.get(mark, "missing"), step, rate


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


def duration(seconds: float) -> str:
    """``40 s``, ``2 min 05 s``, ``3 h 10 min``, ``3,515 h``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours:,} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"

"""What the jobs of a sweep have left to train, and how long it takes.

No job is composed for it alone and no image is decoded. A speed is that of runs that trained, or is clocked once and
kept: a plan, and the command that follows it, size jobs by it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from dgbench.errors import DgbenchError
from dgbench.plan.folds import Fold
from dgbench.plan.studies import PlannedStudy, Planner
from dgbench.records.files import write_whole
from dgbench.records.locks import is_locked
from dgbench.records.spec import digest
from dgbench.records.status import FAILED, INTERRUPTED, RUNNING, is_done, read_beat, read_status

SAMPLES = 30  # runs that a mean speed or size is taken from

Kind = tuple[str, ...]  #: dataset, algorithm, network, tuning, sharpness


@dataclass
class KindLeft:
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
        """Models that are not done."""
        return self.models.total() - self.models["done"]

    @property
    def seconds(self) -> float | None:
        """What is left takes so long in one process; None where no speed is known."""
        if not self.minibatches_left:
            return 0.0
        return self.minibatches_left / fmean(self.rates) if self.rates else None

    @property
    def bytes(self) -> float | None:
        """Disk that what is left will take; None where no run is done."""
        if not self.to_train:
            return 0.0
        return self.to_train * fmean(self.sizes) if self.sizes else None


@dataclass
class Left:
    """What one job has left: runs, and minibatches of one environment by kind."""

    runs: int = 0
    minibatches: Counter[Kind] = field(default_factory=Counter)


class Workload:
    """What jobs have left, by kind of model and by job.

    Args:
        planner: plans their studies.
    """

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.kinds: dict[Kind, KindLeft] = {}
        self._seen: dict[str, set[str]] = defaultdict(set)  # folds of the study in a folder; jobs may share a study

    def add(self, words: Sequence[str]) -> Left:
        """Count a job; folds that an earlier one trains are left to that.

        Raises:
            ConfigError, DataError, WeightsError: a study that cannot work.
        """
        left = Left()
        for study in self.planner.studies(words):
            seen = self._seen[str(study.folder)]
            new = [fold for fold in study.folds if fold.name not in seen]
            if new:
                kind = kind_of(study)
                own = self.kinds.setdefault(kind, KindLeft(study.spec.algorithm))
                own.studies += not seen
                before = own.minibatches_left
                left.runs += _count(own, study, new)
                left.minibatches[kind] += own.minibatches_left - before
                seen.update(fold.name for fold in new)
        return left

    def clock(self, speeds: Speeds) -> None:
        """Clock the kinds of which nothing ran yet."""
        for kind in self.kinds.values():
            if kind.seconds is None and kind.left:
                rate = speeds.of(kind.left)
                kind.rates += [] if rate is None else [rate]

    def seconds(self, minibatches: Mapping[Kind, int]) -> float | None:
        """How long these take in one process; None where the speed of some is not known."""
        total = 0.0
        for kind, count in minibatches.items():
            rates = self.kinds[kind].rates
            if count and not rates:
                return None
            total += count / fmean(rates) if count else 0.0
        return total


def kind_of(study: PlannedStudy) -> Kind:
    """Models of one kind cost the same."""
    groups = ("dataset", "algorithm", "backbone", "tuning", "sharpness")
    return tuple(str(study.config[group]["name"]) for group in groups)


def _count(kind: KindLeft, study: PlannedStudy, folds: Sequence[Fold]) -> int:
    """Take in what of a study's folds is done; the number that is not."""
    steps = int(study.spec.training["steps"])
    before, begun = kind.to_train, study.folder.is_dir()
    for fold in folds:
        environments = len(fold.training)
        if not begun:
            kind.models["missing"] += 1
            kind.minibatches_left += steps * environments
            continue
        folder = study.run_folder(fold)
        state, step, rate = _state(folder)
        kind.models[state] += 1
        if state != "done":
            kind.minibatches_left += max(0, steps - step) * environments
        if rate and len(kind.rates) < SAMPLES:
            kind.rates.append(rate * environments)
        if state == "done" and len(kind.sizes) < SAMPLES:
            kind.sizes.append(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))
    kind.again += study.repeats * len(folds)
    same_images = not kind.left or study.dataset is kind.left[0].dataset
    if kind.to_train > before and len(kind.left) < SAMPLES and same_images:
        kind.left.append(study)
    return kind.to_train - before


def _state(folder: Path) -> tuple[str, int, float | None]:
    """How a run stands, its last known step, and its speed in models times steps per second."""
    word = read_status(folder).word
    beat = read_beat(folder)
    step = beat.step if beat else 0
    rate = beat.steps_per_s * beat.runs if beat and beat.steps_per_s is not None else None
    if word == RUNNING:
        return "running" if is_locked(folder) else "stopped", step, rate
    if is_done(folder):
        return "done", step, rate
    return {FAILED: "failed", INTERRUPTED: "stopped"}.get(word, "missing"), step, rate


SPEEDS = ".jobs/speeds.json"  # in the folder of a sweep; only plans read it
Clock = Callable[[Sequence[PlannedStudy]], float]


class Speeds:
    """Clocks studies, and keeps what stands in the way, as images or weights that are not on this machine.

    Args:
        clock: minibatches per second of some studies of one kind; None takes only what was kept.
        folder: of the sweep, where speeds are kept; None keeps none.
        device: what the jobs train on, ``gpu`` or ``cpu``: each has speeds of its own.
        anew: clock also what was kept.
    """

    def __init__(
        self, clock: Clock | None, folder: Path | None = None, device: str = "cpu", anew: bool = False
    ) -> None:
        self.clock, self.file, self.device, self.anew = clock, folder and folder / SPEEDS, device, anew
        self._why: dict[tuple[str, str], str] = {}

    def of(self, studies: Sequence[PlannedStudy]) -> float | None:
        """Minibatches of one environment per second, of all models together; None where they cannot be clocked."""
        kept = None if self.anew else self._kept().get(self._key(studies[0]))
        return kept or (self._clocked(self.clock, studies) if self.clock else None)

    def _clocked(self, clock: Clock, studies: Sequence[PlannedStudy]) -> float | None:
        first = studies[0]
        key = (first.info.name, first.spec.backbone)
        if key not in self._why:  # what one algorithm lacks, all lack
            try:
                rate = clock(studies)
            except DgbenchError as error:
                self._why[key] = str(error)
            except Exception as error:  # a device whose memory is full, say: a plan without times is still a plan
                self._why[key] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            else:
                self._keep(self._key(first), rate)
                return rate
        return None

    def _key(self, study: PlannedStudy) -> str:
        if self.file is None:
            return ""
        chosen = [study.config[group]["name"] for group in ("algorithm", "tuning")]
        chosen += [study.config["sharpness"]["name"]] if "_target_" in study.spec.sharpness else []
        shapes = [study.info.name, study.info.image, study.spec.backbone, study.spec.hparams["batch_size"]]
        return digest([self.device, *chosen, *shapes, study.config["execution"]])

    def _kept(self) -> dict[str, float]:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            said = json.loads(self.file.read_text()) if self.file else {}
            return {key: float(rate) for key, rate in said.items() if rate > 0}
        return {}

    def _keep(self, key: str, rate: float) -> None:
        if self.file is not None:
            with suppress(OSError):  # a folder that cannot be written keeps no speeds
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self.file, json.dumps({**self._kept(), key: rate}, indent=1) + "\n")

    def notes(self) -> list[str]:
        """One line for every dataset and network that could not be clocked."""
        return [f"not clocked, {dataset} with {network}: {why}" for (dataset, network), why in self._why.items()]


def images_of_a_step(study: PlannedStudy) -> str:
    """``pacs: 32 images of each of 3 environments per model and step``."""
    sizes = sorted({len(fold.training) for fold in study.folds})
    environments = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    images = f"{study.spec.hparams['batch_size']} images of each of {environments} environments"
    return f"{study.info.name}: {images} per model and step"

"""How fast models train, clocked once and kept: a plan, and the command that follows it, size jobs by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dgbench.errors import DgbenchError
from dgbench.plan.studies import PlannedStudy
from dgbench.records.files import write_whole
from dgbench.records.spec import digest

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

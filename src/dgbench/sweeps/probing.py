"""What a plan says besides its counts: images of a step, and the speed of what was never trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dgbench.errors import DgbenchError
from dgbench.training.jobs import PlannedStudy

Clock = Callable[[Sequence[PlannedStudy]], float]


class Speeds:
    """Clocks studies, and keeps what stands in the way, as images or weights that are not on this machine.

    Args:
        clock: minibatches per second of some studies of one kind.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._why: dict[tuple[str, str], str] = {}

    def of(self, studies: Sequence[PlannedStudy]) -> float | None:
        """Minibatches of one environment per second, of all models together; None where they cannot be clocked."""
        first = studies[0]
        key = (first.info.name, first.spec.backbone)
        if key not in self._why:  # what one algorithm lacks, all lack
            try:
                return self.clock(studies)
            except DgbenchError as error:
                self._why[key] = str(error)
            except Exception as error:  # a device whose memory is full, say: a plan without times is still a plan
                self._why[key] = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return None

    def notes(self) -> list[str]:
        """One line for every dataset and network that could not be clocked."""
        return [f"not clocked, {dataset} with {network}: {why}" for (dataset, network), why in self._why.items()]


def images_of_a_step(study: PlannedStudy) -> str:
    """``pacs: 32 images of each of 3 environments per model and step``."""
    sizes = sorted({len(fold.training) for fold in study.folds})
    environments = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    images = f"{study.spec.hparams['batch_size']} images of each of {environments} environments"
    return f"{study.info.name}: {images} per model and step"

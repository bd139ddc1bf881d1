"""What a plan says besides its counts: images of a step, and the speed of what was never trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dgbench.cli.absent_data import known_without_images
from dgbench.cli.fold_plan import planned_folds
from dgbench.cli.hyperparameters import hyperparameters
from dgbench.errors import DgbenchError

Clock = Callable[[Sequence[tuple[DictConfig, Path]]], float]


class Speeds:
    """Clocks studies, and keeps what stands in the way, as images or weights that are not on this machine.

    Args:
        clock: minibatches per second of some studies of one kind.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._why: dict[tuple[str, str], str] = {}

    def of(self, studies: Sequence[tuple[DictConfig, Path]]) -> float | None:
        """Minibatches of one environment per second, of all models together; None where they cannot be clocked."""
        first = studies[0][0]
        key = (str(first.dataset.name), str(first.backbone.name))
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


def images_of_a_step(config: DictConfig) -> str | None:
    """``pacs: 32 images of each of 3 environments per model and step``; None where only the images can tell."""
    dataset: Any = OmegaConf.to_container(config.dataset, resolve=True, throw_on_missing=False)
    known = known_without_images(dataset)
    if known is None:
        return None
    sizes = sorted({len(fold.training) for fold in planned_folds(config, known)})
    environments = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    trainer, _ = hyperparameters(config, set(config.algorithm.hparams or {}))
    images = f"{trainer.batch_size} images of each of {environments} environments"
    return f"{config.dataset.name}: {images} per model and step"

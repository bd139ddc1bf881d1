"""``trainer.eval_test=best``: which evaluations score ``test``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytorch_lightning.trainer.states import TrainerFn

from dgbench.batches import ErrorRecipe

TIE = 1e-9  # errors this close may change places by rounding


class WhenToTest:
    """Tells the data which passes are wanted: those of ``test`` at the last step and where ``val`` is at its best.

    Asked before each pass, it decides once per evaluation, at the first pass that only ``test`` needs; ``val`` has
    been scored by then.

    Args:
        trainer: whose data will ask.
        pl_module: that counts ``steps_done``.
        scores: errors that are recorded.
        best_now: whether the error on ``val``, scored just now, is the lowest so far.
    """

    def __init__(
        self, trainer: Any, pl_module: Any, scores: Sequence[ErrorRecipe], best_now: Callable[[], bool]
    ) -> None:
        needed = {name for score in scores if score.subset != "test" for name in score.mixture}
        self._only_test = {name for score in scores for name in score.mixture} - needed
        self._trainer, self._module, self._best_now = trainer, pl_module, best_now
        self._decided: tuple[int, bool] | None = None
        trainer.datamodule.wanted = self

    def __call__(self, name: str) -> bool:
        """Whether the pass of this name is wanted."""
        if name not in self._only_test or is_last(self._trainer, self._module):
            return True
        step = int(self._module.steps_done)
        if self._decided is None or self._decided[0] != step:
            self._decided = step, self._best_now()
        return self._decided[1]


def is_last(trainer: Any, pl_module: Any) -> bool:
    """Whether no step follows the evaluation that is going on."""
    return bool(trainer.state.fn != TrainerFn.FITTING or pl_module.steps_done >= trainer.datamodule.steps)


def at_best(error: float, lowest: float) -> bool:
    """Whether an error on ``val`` is as low as the lowest before it, or lower."""
    return error <= lowest + TIE

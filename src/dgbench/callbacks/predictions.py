"""Writes what every run predicts for every image that it is evaluated on, batch by batch."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn

from dgbench.batches import ErrorRecipe
from dgbench.callbacks.prediction_lines import PredictionLines, columns_of
from dgbench.callbacks.recorder import Recorder
from dgbench.callbacks.when_to_test import is_last
from dgbench.errors import RecordError
from dgbench.records.prediction_file import about_predictions

log = logging.getLogger(__name__)


@dataclass
class PredictedRun:
    """Where the predictions of one run go.

    Args:
        file: its path; None for a run that is complete and computed once more beside others.
        about: what the file says of the run, see :func:`~dgbench.records.prediction_file.about_predictions`, less
            ``step``, ``evaluation`` and ``recipes``.
        recipes: the errors that are recorded of it.
    """

    file: Path | None
    about: Mapping[str, Any]
    recipes: Sequence[ErrorRecipe]
    places: dict[str, list[tuple[str | None, str | None]]] = field(init=False)  #: of each eval set, env and subset

    def __post_init__(self) -> None:
        alone: dict[str, list[tuple[str | None, str | None]]] = defaultdict(list)
        for recipe in self.recipes:
            for name in recipe.mixture:
                alone[name] += [(recipe.env, recipe.subset)] if len(recipe.mixture) == 1 else []
        self.places = {name: list(dict.fromkeys(places)) or [(None, None)] for name, places in alone.items()}


class Predictions(pl.Callback):
    """Writes one file per run at the last evaluation, or at each that is the best so far on ``val``.

    A file has its name once the evaluation is over. It must come after the recorder, which says who improved.

    Args:
        runs: in the order of the module.
        which: ``last`` or ``best``.
        recorder: of the rows.
    """

    def __init__(self, runs: Sequence[PredictedRun], which: str, recorder: Recorder) -> None:
        self.runs, self.which, self.recorder = list(runs), which, recorder
        self._open: dict[int, PredictionLines] = {}

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Forget predictions of later steps, which will be made again."""
        for run in self.runs:
            if run.file is not None and run.file.exists():
                try:
                    later = about_predictions(run.file)["step"] > pl_module.steps_done
                except RecordError:
                    later = True
                if later or self.recorder.final_only:
                    run.file.unlink()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        training = trainer.state.fn == TrainerFn.FITTING
        wanted = self.which == "best" or is_last(trainer, pl_module)
        if trainer.sanity_checking or not wanted or (self.recorder.final_only and training):
            return
        attributes = list(trainer.datamodule.environments.catalog.attributes)
        for i, run in enumerate(self.runs):
            if run.file is not None and i not in pl_module.diverged:
                recipes = [{"env": r.env, "subset": r.subset, "mixture": dict(r.mixture)} for r in run.recipes]
                about = {**run.about, "step": pl_module.steps_done, "evaluation": self.which, "recipes": recipes}
                self._open[i] = PredictionLines(run.file, about, attributes)
        pl_module.gives_logits = bool(self._open)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        readers = [i for i in self._open if batch.name in self.runs[i].places]
        if not readers:
            return
        columns = columns_of(batch, outputs["logits"][readers], trainer.datamodule.environments)
        for own, i in zip(columns, readers, strict=True):
            for env, subset in self.runs[i].places[batch.name]:
                self._open[i].add({**own, "eval_set": batch.name, "env": env, "subset": subset})

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        pl_module.gives_logits = False
        for i in list(self._open):
            keep = i not in pl_module.diverged and (self.which == "last" or i in self.recorder.improved)
            lines = self._open.pop(i)
            lines.finish() if keep else lines.discard()

    def on_fit_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        for i, run in enumerate(self.runs):
            missed = self.which == "best" and not self.recorder.final_only and i not in pl_module.diverged
            if missed and run.file is not None and not run.file.exists():
                log.warning(
                    "%s: the best evaluation was made before predictions were asked for; none written", run.file
                )

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        pl_module.gives_logits = False
        while self._open:
            self._open.popitem()[1].discard()

"""Write what every run predicts for every image that it is evaluated on.

Some thousand lines are written at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from dgbench.batches import ErrorRecipe, EvalBatch
from dgbench.callbacks.recorder import Recorder, is_last
from dgbench.data.environments import Environments
from dgbench.records.files import Checksum, WholeFile, open_regular
from dgbench.records.predictions import ATTRIBUTE, TOP, schema, seal_parquet

log = logging.getLogger(__name__)
#: columns with few different values
CODED = ("eval_set", "env", "subset", "label", "predicted", "top.list.element")
# lines that wait until they are written; a file of many small pieces would be twice as large
LINES_AT_ONCE = 4096


@dataclass
class PredictionTarget:
    """Where the predictions of one run go."""

    #: its path; None for a run that is complete and computed once more beside others
    file: Path | None
    #: what the file says of the run, see :func:`~dgbench.records.predictions.about_predictions`,
    #: less ``step``, ``evaluation`` and ``recipes``
    about: Mapping[str, Any]
    recipes: Sequence[ErrorRecipe]  #: the errors that are recorded of it
    #: of each eval set, env and subset
    places: dict[str, list[tuple[str | None, str | None]]] = field(init=False)

    def __post_init__(self) -> None:
        self.places = {}
        for recipe in self.recipes:
            for name in recipe.mixture:
                places = self.places.setdefault(name, [])
                place = (recipe.env, recipe.subset)
                if len(recipe.mixture) == 1 and place not in places:
                    places.append(place)
        for places in self.places.values():
            if not places:  # it only goes into mixtures
                places.append((None, None))


class PredictionWriter(pl.Callback):
    """Writes one file per run at the last evaluation, or at each that is the best so far.

    The best is that on ``val``. A file has its name once the evaluation is over. The callback must
    come after the recorder, which says who improved.

    Args:
        runs: in the order of the module.
        which: ``last`` or ``best``.
        recorder: of the rows.
    """

    def __init__(self, runs: Sequence[PredictionTarget], which: str, recorder: Recorder) -> None:
        self.runs = list(runs)
        self.which = which
        self.recorder = recorder
        #: the file of each run, of earlier starts included; None if there is none yet
        self.written: list[Checksum | None] = [None] * len(self.runs)
        self._open: dict[int, PredictionLines] = {}

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        training = trainer.state.fn == TrainerFn.FITTING
        is_due = self.which == "best" or is_last(trainer, pl_module)
        if trainer.sanity_checking or not is_due or (self.recorder.final_only and training):
            return
        attributes = list(trainer.datamodule.environments.catalog.attributes)
        for i, run in enumerate(self.runs):
            if run.file is not None and i not in pl_module.diverged:
                self._open[i] = PredictionLines(run, pl_module.steps_done, self.which, attributes)
        pl_module.gives_logits = bool(self._open)

    def on_validation_batch_end(
        self,
        trainer: Any,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        readers = [i for i in self._open if batch.name in self.runs[i].places]
        if not readers:
            return
        columns = columns_of(batch, outputs["logits"][readers], trainer.datamodule.environments)
        for shared, i in zip(columns, readers, strict=True):
            self._open[i].add(batch.name, shared)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        pl_module.gives_logits = False
        for i in list(self._open):
            lines = self._open.pop(i)
            is_wanted = self.which == "last" or i in self.recorder.improved
            if is_wanted and i not in pl_module.diverged:
                self.written[i] = lines.finish()
            else:
                lines.discard()

    def on_fit_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Remove files of an earlier start whose evaluation was not the last or the best again."""
        for i, run in enumerate(self.runs):
            checksum = self.written[i]
            if run.file is None or (checksum and checksum.begins(run.file)):
                continue
            run.file.unlink(missing_ok=True)
            recorded = self.which == "best" and not self.recorder.final_only
            if recorded and i not in pl_module.diverged:
                log.warning(
                    (
                        "%s: the best evaluation was made before predictions were asked "
                        "for; no predictions are written"
                    ),
                    run.file,
                )

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        pl_module.gives_logits = False
        while self._open:
            self._open.popitem()[1].discard()


def columns_of(
    batch: EvalBatch, logits: Tensor, environments: Environments
) -> list[dict[str, Any]]:
    """Build the columns that need images, for each run.

    Names, labels and attributes are shared by all runs.

    Args:
        batch: n images.
        logits: (R, n, K).
        environments: of the images.
    """
    import pyarrow as pa

    assert batch.positions is not None
    n = len(batch.y)
    k = min(TOP, logits.shape[2])
    # argmax decides, as in the counted errors; the order of equal logits is not that of a sort
    # everywhere
    predicted = logits.argmax(2).cpu().numpy()
    best = logits.sort(dim=2, descending=True, stable=True).indices[:, :, :k]
    probability = logits.double().softmax(2).gather(2, best).float().cpu().numpy()
    top = best.cpu().numpy()
    positions = batch.positions.cpu().numpy()
    ends = pa.array(np.arange(0, n * k + 1, k, dtype=np.int32))
    shared = {
        "image": pa.array(environments.catalog.names_at(positions), pa.string()),
        "label": batch.y.cpu().numpy(),
    }
    for name, values in environments.catalog.attributes_at(positions).items():
        shared[ATTRIBUTE + name] = pa.array(values).dictionary_encode()
    columns = []
    for i in range(len(logits)):
        of_run = {
            "predicted": predicted[i],
            "top": (ends, top[i]),
            "probability": (ends, probability[i]),
        }
        columns.append({**shared, **of_run})
    return columns


class PredictionLines:
    """The lines of the file of a run, written some thousand at a time.

    Args:
        run: whose file.
        step: of the evaluation.
        evaluation: ``last`` or ``best``.
        attributes: names of further columns.
    """

    def __init__(
        self, run: PredictionTarget, step: int, evaluation: str, attributes: Sequence[str]
    ) -> None:
        import pyarrow.parquet as pq

        assert run.file is not None
        recipes = [
            {"env": r.env, "subset": r.subset, "mixture": dict(r.mixture)} for r in run.recipes
        ]
        about = {**run.about, "step": step, "evaluation": evaluation, "recipes": recipes}
        self._places = run.places
        self._schema = schema(about, attributes)
        self._file = WholeFile(run.file)
        # names of images are sorted mostly, so the end of each is enough; probabilities differ in
        # their last bytes
        self._writer: Any = pq.ParquetWriter(
            self._file,
            self._schema,
            compression="zstd",
            write_page_checksum=True,
            use_dictionary=[*CODED, *(ATTRIBUTE + name for name in attributes)],
            column_encoding={
                "image": "DELTA_BYTE_ARRAY",
                "probability.list.element": "BYTE_STREAM_SPLIT",
            },
        )
        self._waiting: list[Any] = []

    def add(self, eval_set: str, shared: Mapping[str, Any]) -> None:
        """Add the lines of a batch, once per environment and subset that its eval set is.

        Sets of other runs are skipped.
        """
        import pyarrow as pa

        n = len(shared["label"])
        for env, subset in self._places.get(eval_set, ()):
            columns = {**shared, "eval_set": eval_set, "env": env, "subset": subset}
            arrays = [_array(columns[field.name], field.type, n) for field in self._schema]
            self._waiting.append(pa.record_batch(arrays, schema=self._schema))
            if sum(map(len, self._waiting)) >= LINES_AT_ONCE:
                self._write()

    def finish(self) -> Checksum:
        """Write the last lines, and give the file its name.

        Returns:
            the checksum of the file.
        """
        try:
            self._write()
            self._writer.close()
            self._file.commit(seal_parquet)
            with open_regular(self._file.path) as file:
                return Checksum.of_beginning(file)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Close and remove the unfinished file."""
        with suppress(OSError):  # it writes its end first, and the disk may be full
            self._writer.close()
        with suppress(OSError):
            self._file.discard()

    def _write(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting).unify_dictionaries())
            self._file.flush()
            self._waiting = []


def _array(values: Any, kind: Any, n: int) -> Any:
    import pyarrow as pa

    if values is None:
        return pa.nulls(n, kind)
    if isinstance(values, str):
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), [values])
    if isinstance(values, tuple):
        ends, inner = values
        return pa.ListArray.from_arrays(ends, pa.array(inner.reshape(-1), kind.value_type))
    return values if isinstance(values, pa.Array) else pa.array(values, kind)

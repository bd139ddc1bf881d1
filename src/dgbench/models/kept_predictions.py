"""What an evaluated model predicts for every image, written while it is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from torch import Tensor

from dgbench.callbacks.predictions import PredictedRun, PredictionLines, columns_of
from dgbench.data.environments import Environments
from dgbench.records.predictions import need_pyarrow
from dgbench.tensors import EvalBatch

Listen = Callable[[EvalBatch, Tensor], None]


@contextmanager
def kept(runs: Sequence[PredictedRun], step: int, environments: Environments) -> Iterator[Listen | None]:
    """Listens to every batch and its (n, K) logits, and writes a file for each run once all went well.

    Args:
        runs: the folds that a model is evaluated in; none writes nothing.
        step: optimizer steps of the weights.
        environments: the images.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    if not runs:
        yield None
        return
    need_pyarrow("predictions=true")
    attributes = list(environments.image_attributes(np.empty(0, np.int64)))
    files: list[PredictionLines] = []
    try:
        for run in runs:
            assert run.file is not None
            run.file.parent.mkdir(parents=True, exist_ok=True)
            recipes = [{"env": r.env, "subset": r.subset, "mixture": dict(r.mixture)} for r in run.recipes]
            about = {**run.about, "step": step, "evaluation": "last", "recipes": recipes}
            files.append(PredictionLines(run.file, about, attributes))

        def listen(batch: EvalBatch, logits: Tensor) -> None:
            (columns,) = columns_of(batch, logits[None], environments)
            for run, file in zip(runs, files, strict=True):
                for env, subset in run.places.get(batch.name, []):
                    file.add({**columns, "eval_set": batch.name, "env": env, "subset": subset})

        yield listen
    except BaseException:
        for file in files:
            file.discard()
        raise
    for file in files:
        file.finish()

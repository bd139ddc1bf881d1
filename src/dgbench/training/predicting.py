"""``trainer.predictions``: which runs write what they predict, and which were done without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dgbench.callbacks.predictions import PredictedRun, Predictions
from dgbench.callbacks.recorder import Recorder
from dgbench.errors import RecordError
from dgbench.records.prediction_file import PREDICTION_FILE, about_predictions
from dgbench.training.study import Run


def predictions(runs: Sequence[Run], recorder: Recorder) -> list[Predictions]:
    """What writes the predictions of runs that train together; nothing where none are asked for.

    Args:
        runs: in the order of the module.
        recorder: of their rows.
    """
    which = runs[0].study.settings.predictions
    if which == "none":
        return []
    wanted = [_wanted(run, record.file is None) for run, record in zip(runs, recorder.runs, strict=True)]
    return [Predictions(wanted, which, recorder)]


def lacking(runs: Sequence[Run]) -> str:
    """One line on finished runs whose predictions are asked for and not there; empty where there are none.

    Args:
        runs: that are done.
    """
    lack = [run for run in runs if _lacks(run)]
    if not lack:
        return ""
    some = f"{lack[0].folder} was" if len(lack) == 1 else f"{len(lack)} runs, e.g. {lack[0].folder}, were"
    return (
        f"{some} done before trainer.predictions={lack[0].study.settings.predictions} was set and not trained again; "
        "write them with dgbench evaluate model=FOLDER predictions=true, or delete the folder to train it anew"
    )


def _lacks(run: Run) -> bool:
    which = run.study.settings.predictions
    try:
        return which != "none" and about_predictions(_file(run)).get("evaluation") != which
    except RecordError:
        return True


def _wanted(run: Run, complete: bool) -> PredictedRun:
    about = {
        "run": run.hash,
        "dataset": run.study.info.name,
        "algorithm": run.spec.algorithm,
        "seed": run.spec.seed,
        "fold": run.fold.name,
        "training": list(run.fold.training),
        "held_out": list(run.fold.held_out),
        "classes": list(run.data.environments.catalog.classes),
        "root": run.study.config["dataset"].get("root"),
    }
    return PredictedRun(None if complete else _file(run), about, run.data.recipes)


def _file(run: Run) -> Path:
    return run.folder / PREDICTION_FILE

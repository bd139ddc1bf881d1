"""Say what runs give besides rows: metrics for loggers, and what they predict for every image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dgbench.callbacks.loggers import CsvLog, Guard, MetricsLogger, RunInfo
from dgbench.callbacks.metrics import RunMetrics, with_errors
from dgbench.callbacks.predictions import PredictedRun, Predictions
from dgbench.callbacks.recorder import Recorder
from dgbench.errors import RecordError
from dgbench.records.metrics import METRICS_FILE, Lines, read_metrics, write_metrics
from dgbench.records.predictions import PREDICTION_FILE, about_predictions
from dgbench.records.spec import code_version
from dgbench.training.study import Run, Study


def info_of(run: Run) -> RunInfo:
    """What a logger gets to know of a run; its id is the run's hash, so a resumed one continues."""
    study = run.study
    name, job_type = f"{study.folder.name}/fold-{run.fold.name}", f"fold-{run.fold.name}"
    config = {
        **study.config,
        **columns_of(study),
        "fold": run.fold.name,
        "held_out": ", ".join(run.fold.held_out),
    }
    return RunInfo(run.folder, run.hash, name, job_type, study.folder.name, config, [*tags_of(study), "fold"])


def columns_of(study: Study) -> dict[str, Any]:
    """What a dashboard groups and filters by: flat names for W&B's run table."""
    names = {f"{key}_name": study.config[key]["name"] for key in ("dataset", "algorithm", "backbone", "protocol")}
    labels = {"space": study.spec.space, "draw": study.spec.draw, "trial": study.spec.trial}
    return {**names, **labels, "hyperparameters": dict(study.hparams), "code": code_version()}


def tags_of(study: Study) -> list[str]:
    """Tags of its W&B runs."""
    searched = ["search"] if study.spec.draw or study.config["hparams"].get("scheme") is not None else []
    return [study.info.name, study.spec.algorithm, *searched]


def metrics_of(run: Run, live: MetricsLogger | None, safely: Guard) -> RunMetrics:
    """The metrics of a run that trains.

    Args:
        live: the logger that follows it; None where other runs train beside it.
        safely: what guards its file.
    """
    return RunMetrics(info_of(run), live, safely)


def show_run(logger: MetricsLogger, run: Run, complete: bool, safely: Guard, only_new: bool = False) -> None:
    """Give a logger all that a run has logged: one of a stack at its end, or one that was trained without the logger.

    Args:
        complete: it did not fail.
        safely: what guards its file.
        only_new: leave out a run that the logger knows.
    """
    file = run.folder / METRICS_FILE
    is_shown = isinstance(logger, CsvLog) or (only_new and logger.knows(run.folder))
    if is_shown and file.exists():
        return
    lines: Lines = {}

    def read() -> None:
        lines.update(with_errors(read_metrics(file), run.folder))
        if not file.exists():
            write_metrics(file, lines)

    safely(read)
    if is_shown:
        return
    logger.start(info_of(run))
    for step, values in lines.items():
        logger.log(step, values)
    logger.finish(failed=not complete)


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

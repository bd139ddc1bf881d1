"""The metrics of a run: what loggers get of it as it trains, and all that it logged given to one at once."""

from __future__ import annotations

from typing import Any

from dgbench.callbacks.loggers import CsvLog, Guard, MetricsLogger, RunInfo
from dgbench.callbacks.run_metrics import RunMetrics, with_errors
from dgbench.records.code import code_version
from dgbench.records.metrics import METRICS_FILE, Lines, read_metrics, write_metrics
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
    known = isinstance(logger, CsvLog) or (only_new and logger.knows(run.folder))
    if known and file.exists():
        return
    lines: Lines = {}

    def read() -> None:
        lines.update(with_errors(read_metrics(file), run.folder))
        if not file.exists():
            write_metrics(file, lines)

    safely(read)
    if known:
        return
    logger.start(info_of(run))
    for step, values in lines.items():
        logger.log(step, values)
    logger.finish(failed=not complete)

"""The metrics of a run: what loggers are told of it, and all that it logged given to one at once."""

from __future__ import annotations

from dgbench.callbacks.loggers import CsvLog, Guard, MetricsLogger, RunInfo
from dgbench.callbacks.run_metrics import RunMetrics, with_errors
from dgbench.records.metrics import METRICS_FILE, Lines, read_metrics, write_metrics
from dgbench.training.study import Run


def info_of(run: Run) -> RunInfo:
    """What a logger gets to know of a run; its id is the run's hash, so a resumed one continues."""
    study = run.study
    name, job_type = f"{study.folder.name}/fold-{run.fold.name}", f"fold-{run.fold.name}"
    config = {
        **study.config,
        **study.columns(),
        "fold": run.fold.name,
        "held_out": ", ".join(run.fold.held_out),
    }
    return RunInfo(run.folder, run.hash, name, job_type, study.folder.name, config, [*study.tags(), "fold"])


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

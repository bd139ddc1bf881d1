"""The W&B run of a run: its name, its configuration, and its rows where it trained without it."""

from __future__ import annotations

from itertools import groupby

from dgbench.callbacks.wandb_log import WandbLog
from dgbench.records.rows import ROW_FILE, read_rows, row_of
from dgbench.training.study import Run


def open_run(wandb_log: WandbLog, run: Run) -> None:
    """Open the W&B run of a run; its id is the run's hash, so a resumed one continues."""
    study = run.study
    name, job_type = f"{study.folder.name}/fold-{run.fold.name}", f"fold-{run.fold.name}"
    document = {
        **study.config,
        **study.columns(),
        "fold": run.fold.name,
        "held_out": ", ".join(run.fold.held_out),
    }
    wandb_log.start(run.folder, run.hash, name, job_type, study.folder.name, document, [*study.tags(), "fold"])


def log_rows(wandb_log: WandbLog, run: Run, complete: bool) -> None:
    """The W&B run of a run that trained without it, from its rows."""
    open_run(wandb_log, run)
    file = run.folder / ROW_FILE
    rows = [row_of(flat) for flat in read_rows(file)[0]] if file.exists() else []
    for step, evaluation in groupby(rows, key=lambda row: row.step):
        wandb_log.rows(step, list(evaluation))
    wandb_log.finish(failed=not complete)

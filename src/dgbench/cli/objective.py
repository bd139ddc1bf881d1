"""What ``train.py`` returns to a sweeper that optimizes, such as Hydra's plug-ins for Optuna,
Nevergrad or Ax.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from dgbench.analysis.selection import Selection
from dgbench.cli.entry import sign_of_life
from dgbench.errors import RunsFailedError
from dgbench.plan.folds import FULL
from dgbench.records.rows import ROW_FILE, read_rows
from dgbench.reports.reading.collect import collect
from dgbench.reports.reading.selected import select_runs


def objective(folders: Sequence[Path], selection: Selection) -> float:
    """Average the validation error of training environments over folds; never a test error.

    The model of fold ``full``, which trains on all given environments, counts only where there is
    no other.

    Args:
        folders: of the runs of a command.
        selection: of the step of each.

    Raises:
        RunsFailedError: no run has such an error.
    """
    errors = training_validation_errors(folders, selection)
    folds = sorted(errors.keys() - {FULL}) or sorted(errors)
    if not folds:
        raise RunsFailedError(
            "no run has a validation error to optimize; see status in the folders of its runs"
        )
    if len(folds) > 1:
        sign_of_life(
            f"note: the sweeper chooses for {len(folds)} folds together, and each validates on "
            f"environments that others hold out; protocol.folds={folds[0]} chooses for one fold "
            "alone"
        )
    error = fmean(errors[fold] for fold in folds)
    print(f"error/training_val: {error:.6f}, returned to the sweeper")
    return error


def training_validation_errors(folders: Sequence[Path], selection: Selection) -> dict[str, float]:
    """Compute ``error/training_val``, a fraction, at the step that a selection chooses: means over
    runs, by fold.
    """
    errors: dict[str, list[float]] = defaultdict(list)
    for run in select_runs(collect(folders), selection).runs:
        rows, _ = read_rows(Path(run.folder) / ROW_FILE)
        values = [
            row["wrong"] / row["seen"]
            for row in rows
            if row["step"] == run.step and row["subset"] == "val" and not row["env_held_out"]
        ]
        if values:
            errors[str(run.identity["fold"])].append(fmean(values))
    return {fold: fmean(values) for fold, values in errors.items()}

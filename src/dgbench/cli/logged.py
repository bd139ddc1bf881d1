"""What loggers get of a study at its end, and the lines that say where they wrote."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.analysis.accuracy import mean
from dgbench.configuration import quoted_word
from dgbench.records.wandb_runs import Mark, project_name, read_mark


def validation_errors(
    rows: Sequence[Mapping[str, Any]], steps: Mapping[str, int]
) -> dict[str, float]:
    """Compute mean validation errors of training environments.

    A search of hyperparameters may look at them.

    Args:
        rows: of a study.
        steps: fold -> selected step.

    Returns:
        ``error/training_val``, at the selected steps, and ``error/training_val_min``, the lowest
        over the steps that all folds have: means over the folds that hold an environment out;
        neither where there are none.
    """
    # step -> fold
    errors: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if (
            row["fold"] in steps
            and row["held_out"]
            and row["subset"] == "val"
            and not row["env_held_out"]
        ):
            errors[row["step"]][row["fold"]].append(row["wrong"] / row["seen"])
    means: dict[int, dict[str, float]] = {}
    folds: set[str] = set()
    for step, by_fold in errors.items():
        means[step] = {fold: mean(values) for fold, values in by_fold.items()}
        folds.update(by_fold)
    chosen = [means[steps[fold]][fold] for fold in folds if fold in means.get(steps[fold], {})]
    complete = [by_fold for by_fold in means.values() if folds <= by_fold.keys()]
    if not chosen or len(chosen) < len(folds) or not complete:
        return {}
    curve = [mean(list(by_fold.values())) for by_fold in complete]
    return {"error/training_val": mean(chosen), "error/training_val_min": min(curve)}


def print_logged(logger: Mapping[str, Any], folders: Sequence[Path], below: Path) -> None:
    """Print in one line where TensorBoard or W&B wrote, and what is typed next.

    Args:
        logger: keys of ``conf/logger``.
        folders: of runs and studies.
        below: folder that all of them lie in.
    """
    kind = str(logger.get("_target_")).rpartition(".")[2]
    place = quoted_word(str(below))
    if kind == "TensorBoardLog" and any((folder / "tensorboard").is_dir() for folder in folders):
        print(f"TensorBoard: tensorboard --logdir {place}")
    if kind == "WandbLog":
        _print_wandb([read_mark(folder) for folder in folders if folder.is_dir()], logger, place)


def _print_wandb(marks: Sequence[Mark | None], logger: Mapping[str, Any], place: str) -> None:
    """Print how many runs and studies W&B took, of those that there are.

    Args:
        marks: of every folder.
        logger: keys of ``conf/logger``.
        place: folder that all of them lie in, quoted.
    """
    if "disabled" in (logger["mode"], os.environ.get("WANDB_MODE")):
        return
    taken = [mark for mark in marks if mark and mark.done]
    offline = sum(mark.offline for mark in taken)
    if offline:
        find_command = f"$(find {place} -type d -path '*/wandb/offline-run-*' -prune)"
        print(f"W&B: {offline} offline runs in {place}; send them: wandb sync --yes {find_command}")
    if len(taken) > offline:
        print(f"W&B: {len(taken) - offline} runs in project {project_name(logger['project'])}")
    lacking = len(marks) - len(taken)
    if lacking:
        print(
            f"W&B lacks {lacking} of {len(marks)} runs; the same command sends them, or "
            "with WANDB_MODE=offline writes them to files"
        )

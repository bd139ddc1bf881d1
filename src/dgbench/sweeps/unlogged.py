"""Find the jobs of a sweep that have trained everything, and whose logger lacks something of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dgbench.records.commands import JobPlace
from dgbench.records.metrics import METRICS_FILE
from dgbench.records.wandb_runs import is_sent

#: class of a logger -> whether it has all of the run of a folder
HAS: Mapping[str, Callable[[Path], bool]] = {
    "CsvLog": lambda run: (run / METRICS_FILE).exists(),
    "TensorBoardLog": lambda run: (run / "tensorboard").is_dir(),
    "WandbLog": lambda run: is_sent(run) and is_sent(run.parent),
}


def is_unlogged(place: JobPlace, logger: Mapping[str, Any]) -> bool:
    """Return whether a logger of ours lacks a run of a job that came to its end.

    Args:
        place: of the job.
        logger: keys of ``conf/logger``.
    """
    has = HAS.get(str(logger.get("_target_")).rpartition(".")[2])
    if has is None or "disabled" in (logger.get("mode"), os.environ.get("WANDB_MODE")):
        return False
    return not all(map(has, place.runs() or ()))

"""``planned.json`` in a study's folder: what a command means to train there."""

from __future__ import annotations

import json
from collections.abc import Sequence

from dgbench.records.files import write_whole
from dgbench.records.locks import alone
from dgbench.records.rows import PLAN_FILE
from dgbench.training.job import Job
from dgbench.training.job_record import record_end
from dgbench.training.study import Study

LOCK = f".{PLAN_FILE}.lock"


def keep_plan(studies: Sequence[Study]) -> None:
    """Add what a command means to train to the plan of each study, so that what was never begun can be missed."""
    for study in studies:
        file = study.folder / PLAN_FILE
        study.folder.mkdir(parents=True, exist_ok=True)
        with alone(study.folder / LOCK):  # jobs that train some folds each of one study share its folder
            try:
                known = list(json.loads(file.read_text())["runs"])
            except (OSError, ValueError, KeyError, TypeError):  # none yet, or cut short
                known = []
            runs = list(dict.fromkeys([*known, *(run.folder.name for run in study.runs)]))
            if runs != known:
                write_whole(file, json.dumps({"runs": runs}, indent=1) + "\n")


def remember(job: Job, studies: Sequence[Study]) -> None:
    """Let the next command know what this job planned.

    Args:
        job: that came to its end.
        studies: all that it trained or found done.
    """
    record_end(job.parent, job.key(), [run.folder for study in studies for run in study.runs])

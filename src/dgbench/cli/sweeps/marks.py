"""What a job leaves in its folder when it comes to its end: which members it planned.

With it, starting a finished sweep again costs a few small files per job. The mark is a memory, never the truth: a job
has nothing left only while every member that it names is ``DONE`` by the mark in the member's own folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from dgbench.callbacks.status import read_status
from dgbench.cli.identity import digest, resolved
from dgbench.records import write_whole

# How a job is run: it plans the same members whatever stands there.
HOW = frozenset({"hydra", "paths", "logger", "selection", "execution", "plan", "retry", "sweep"})

_FOLDER = ".jobs"


def job_key(config: DictConfig) -> str:
    """Equal for jobs that plan the same members."""
    return digest({str(key): resolved(config, str(key)) for key in config if key not in HOW})


def mark_end(folder: Path, key: str, members: Sequence[Path]) -> None:
    """A job came to its end, whether its members are complete or not.

    Args:
        folder: the job's.
        key: its :func:`job_key`.
        members: folders of all its members.
    """
    file = _file(folder, key)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps([os.path.relpath(member, folder) for member in members]))


def is_left(folder: Path, key: str, retry: str) -> bool:
    """Whether a job would train anything.

    Args:
        folder: the job's.
        key: its :func:`job_key`.
        retry: as in ``conf/train.yaml``.
    """
    try:
        members = json.loads(_file(folder, key).read_text())
    except (OSError, ValueError):  # it never came to its end
        return True
    marks = [read_status(folder / str(member)).partition(" ")[0] for member in members]
    if retry == "failed":
        return "FAILED" in marks
    return any(mark != "DONE" and not (mark == "FAILED" and retry == "none") for mark in marks)


def _file(folder: Path, key: str) -> Path:
    return folder / _FOLDER / f"{key}.json"

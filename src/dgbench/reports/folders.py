"""What counts as a run folder, and what its status mark says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.records import ROW_FILE

_MARKS = (ROW_FILE, "status", "config.yaml")
_NOT_OURS = {"checkpoints", "wandb"}  # folders inside a run that hold no runs
_STATUSES = ("DONE", "RUNNING", "FAILED")


@dataclass(frozen=True)
class Problem:
    """Something that keeps results out of a table, or that a reader must know."""

    kind: str
    where: str
    reason: str


@dataclass(frozen=True)
class RunFolder:
    """A folder that belongs to one member."""

    path: Path
    status: str  #: ``DONE``, ``RUNNING``, ``FAILED`` or ``UNKNOWN``
    reason: str


def find_runs(roots: Sequence[Path]) -> tuple[list[RunFolder], list[Problem]]:
    """Run folders under ``roots``, sorted by path and each once; missing and empty folders are problems.

    A folder is a run when it has rows, a status or a configuration. A folder that only has a configuration and
    contains runs is the study around them.
    """
    runs: dict[str, RunFolder] = {}
    problems: list[Problem] = []
    for root in roots:
        if not root.is_dir():
            problems.append(Problem("no such folder", str(root), "nothing read from it"))
            continue
        only_config: list[Path] = []
        for name, folders, files in os.walk(root):
            folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _NOT_OURS)
            path = Path(name)
            marks = [mark for mark in _MARKS if mark in files]
            if marks == ["config.yaml"]:
                only_config.append(path)
            elif marks:
                status, reason = read_status(path)
                runs.setdefault(os.path.realpath(path), RunFolder(path, status, reason))
            elif not folders and not files and path != root:
                problems.append(Problem("empty folder", name, "holds no run"))
        for path in only_config:
            real = os.path.realpath(path)
            if not any(other.startswith(real + os.sep) for other in runs):
                runs.setdefault(real, RunFolder(path, "UNKNOWN", "configured, never started"))
    return sorted(runs.values(), key=lambda run: str(run.path)), problems


def fold_of(folder: RunFolder) -> str | None:
    """The fold a run folder was made for, from its configuration (``member.name``); None where that is not told.

    For runs that stopped before their first row; all others carry their fold in the rows.
    """
    import yaml

    try:
        document = yaml.safe_load((folder.path / "config.yaml").read_text(encoding="utf-8"))
        return str(document["member"]["name"])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return None


def typed_overrides(run: Path) -> list[str] | None:
    """What the user typed after ``python train.py``, from Hydra's record in the study folder; None without one."""
    import yaml

    try:
        words = yaml.safe_load((run.parent / ".hydra" / "overrides.yaml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    return [str(word) for word in words] if isinstance(words, list) else None


def read_status(folder: Path) -> tuple[str, str]:
    """The status mark of a run folder and the text after it; ``UNKNOWN`` with the reason when there is none."""
    try:
        text = (folder / "status").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "UNKNOWN", "no readable status file"
    word, _, reason = text.partition(" ")
    if word not in _STATUSES:
        return "UNKNOWN", f"status file says {text[:60]!r}"
    return word, " ".join(reason.split())

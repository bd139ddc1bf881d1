"""Checkpoints of runs that train together: one file, one generation, written whole.

A run alone has ``checkpoints/last.ckpt`` in its folder. A stack has one file in ``.stacks`` beside
its runs or studies, and ``stack.json`` in each run's folder says which; at its end every run gets a
``last.ckpt`` of its own. The state of a run has one layout wherever it stands, so a run can
continue alone or in another stack. It says which rows and predictions stood before it: where these
are gone, nothing continues from there.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dgbench.errors import RecordError, is_out_of_memory
from dgbench.records.files import (
    NOT_REGULAR,
    Checksum,
    check_seal,
    read_json,
    write_sealed,
    write_whole,
)
from dgbench.records.predictions import PREDICTION_FILE, about_predictions
from dgbench.records.rows import ROW_FILE
from dgbench.records.status import (
    DONE,
    is_done,
    is_settled,
    lacking_rows,
    read_status,
    trained_again,
)
from dgbench.training.groups import RunGroup
from dgbench.training.study import ReadyRun

FORMAT = 2
STACKS = ".stacks"
POINTER = "stack.json"
CHANGED = "what stood there before the checkpoint is gone or changed"

log = logging.getLogger("dgbench")


@dataclass
class Snapshot:
    """Where runs that train together stood at one moment."""

    step: int  #: optimizer steps done
    #: state of each run by its hash: ``state_dict``, ``optimizers``, ``rows`` (size and CRC-32 of
    #: the lines that stood before it), ``predictions`` (the same of that file) if it was written,
    #: ``averaging`` if weights are averaged, ``metrics`` if they are logged
    runs: dict[str, dict[str, Any]]
    #: runs whose loss is no longer finite: step and value of the first such loss
    diverged: dict[str, tuple[int, float]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file, whole and synced.

        Raises:
            OSError: it cannot be written; what was there stays.
        """
        content = {"format": FORMAT, **vars(self)}

        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_sealed(path, lambda file: torch.save(content, file))

        try:
            write()
        except FileNotFoundError:  # another process found the folder empty, and removed it
            write()

    @staticmethod
    def load(path: Path, glance: bool = False) -> Snapshot | None:
        """Read a file, or return None if it cannot be continued from.

        That is an absent file or, with a warning, one that is cut short, changed or of an earlier
        version.

        Args:
            path: of the file.
            glance: leave tensors on the disk, and their bytes unchecked (see :func:`contents`).
        """
        if not path.exists():
            return None
        try:
            if not path.is_file():
                raise OSError(NOT_REGULAR)
            if not glance and not check_seal(path):
                raise ValueError("no seal")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=glance)
            if content.pop("format") != FORMAT:
                raise ValueError("another format")
            return Snapshot(**content)
        except Exception as error:  # torch raises whatever its unpickler stumbles over
            if is_out_of_memory(error):
                raise
            log.warning(
                "%s is cut short, damaged or no checkpoint of this version of dgbench; left out, "
                "training starts without it",
                path,
            )
            return None

    def of(self, runs: Sequence[ReadyRun]) -> Snapshot:
        """Extract the part of some runs."""
        names = {run.hash for run in runs}
        return Snapshot(
            self.step,
            {name: state for name, state in self.runs.items() if name in names},
            {name: divergence for name, divergence in self.diverged.items() if name in names},
        )


ResumedPart = tuple[RunGroup, Snapshot | None]  # runs that continue together, and from what


def own_file(run: ReadyRun) -> Path:
    """Name the checkpoint file of a run that trains alone, and of any run at its end."""
    return run.folder / "checkpoints" / "last.ckpt"


def best_file(run: ReadyRun) -> Path:
    """Name the file with the weights of a run at its best evaluation."""
    return run.folder / "checkpoints" / "best.ckpt"


def group_file(group: RunGroup) -> Path:
    """Name the checkpoint file of a group."""
    if not group.stacked:
        return own_file(group.runs[0])
    folder = Path(os.path.commonpath([run.folder.parent.absolute() for run in group.runs]))
    return folder / STACKS / f"{group.key}.ckpt"


def point_to(group: RunGroup, path: Path) -> None:
    """Record in the folder of every run that its latest state is in the file of this group."""
    for run in group.runs:
        if not group.stacked:
            (run.folder / POINTER).unlink(missing_ok=True)
        elif _pointed(run) != path:
            relative = os.path.relpath(path, run.folder.absolute())
            write_whole(run.folder / POINTER, json.dumps({"checkpoint": relative}) + "\n")


def resumable(group: RunGroup, runs: Sequence[ReadyRun]) -> list[ResumedPart]:
    """Plan in which parts the rest of a group is trained, and from which snapshots.

    The whole group continues if its own checkpoint is the latest of every run: finished runs are
    then computed once more, so that the others round as they would have without the interruption.
    It starts from its beginning if a run cannot continue, which a warning names: its checkpoint is
    damaged, or what was written before it is not there; or it is ``DONE``, lacks rows and has no
    checkpoint. If a run beside ``runs`` is not done, ``runs`` alone start again. Otherwise the runs
    that are left stay together as far as they were.

    Raises:
        RecordError: a checkpoint belongs to another run.
    """
    own_path = group_file(group)
    files = {run.hash: _located(run) for run in runs}
    paths = {own_path, *files.values()} - {None}
    snapshots: dict[Path | None, Snapshot | None] = {None: None}  # a run without a file has none
    snapshots |= {path: Snapshot.load(path) for path in paths if path is not None}
    _refuse_others(runs, files, snapshots)
    whole_group = snapshots[own_path]
    latest = max((snapshot.step for snapshot in snapshots.values() if snapshot), default=0)
    if whole_group and _is_of(whole_group, group) and whole_group.step >= latest:
        parts: list[ResumedPart] = [(group, whole_group)]
    else:
        parts = _parts_by_file(group, runs, files, snapshots)
    obstacles = list(filter(None, (_obstacle(run, files[run.hash], parts) for run in runs)))
    if obstacles:
        more = len(obstacles) - 1
        log.warning(
            "%s%s", obstacles[0], f" ({more} more runs lack something, too)" if more else ""
        )
    if obstacles or any(path and not snapshots[path] for path in files.values()):
        others = [run for run in group.runs if run not in runs]
        others_are_done = all(is_done(run.folder, run.evaluations) for run in others)
        return [(group if others_are_done else group.only(runs), None)]
    return parts


def _refuse_others(
    runs: Sequence[ReadyRun],
    files: Mapping[str, Path | None],
    snapshots: Mapping[Path | None, Snapshot | None],
) -> None:
    """Refuse checkpoints that hold other runs.

    Raises:
        RecordError: one does.
    """
    for run in runs:
        path = files[run.hash]
        snapshot = snapshots[path]
        if snapshot and run.hash not in snapshot.runs:
            raise RecordError(
                f"{path} is the checkpoint of {', '.join(snapshot.runs)}, not of {run.hash}; "
                "delete it to train this run from its beginning"
            )


def _is_of(snapshot: Snapshot, group: RunGroup) -> bool:
    """Return whether a snapshot holds the runs of a group and no others."""
    return snapshot.runs.keys() == {run.hash for run in group.runs}


def _parts_by_file(
    group: RunGroup,
    runs: Sequence[ReadyRun],
    files: Mapping[str, Path | None],
    snapshots: Mapping[Path | None, Snapshot | None],
) -> list[ResumedPart]:
    """Split runs into parts whose states are in the same file."""
    together: dict[Path | None, list[ReadyRun]] = {}
    for run in runs:
        together.setdefault(files[run.hash], []).append(run)
    parts: list[ResumedPart] = []
    for path, members in together.items():
        snapshot = snapshots[path]
        parts.append((group.only(members), snapshot.of(members) if snapshot else None))
    return parts


def _obstacle(run: ReadyRun, path: Path | None, parts: Sequence[ResumedPart]) -> str:
    """Explain why a run cannot continue from its part's snapshot, or cannot count as done.

    It is "" if the run can.
    """
    changed_files = (changed_since(snapshot, run) for _, snapshot in parts)
    changed = next(filter(None, changed_files), None)
    if read_status(run.folder).word == DONE and (changed or not path):
        return f"{run.folder}: {trained_again(lacking_rows(run.folder, run.evaluations))}"
    return f"{changed}: {CHANGED}; it is trained again from its beginning" if changed else ""


def changed_since(snapshot: Snapshot | None, run: ReadyRun) -> Path | None:
    """Return the file of a run whose content from before a snapshot is gone or changed, else None.

    It is the row or prediction file. Predictions of a later step do not count as changed: they
    replaced what stood there, and will again.
    """
    state = snapshot.runs.get(run.hash) if snapshot else None
    if snapshot is None or state is None:
        return None
    rows = run.folder / ROW_FILE
    predictions = run.folder / PREDICTION_FILE
    if not Checksum(**state["rows"]).begins(rows):
        return rows
    if run.study.settings.predictions == "none" or "predictions" not in state:
        return None
    if Checksum(**state["predictions"]).begins(predictions):
        return None
    try:
        return None if about_predictions(predictions)["step"] > snapshot.step else predictions
    except RecordError:
        return predictions


def finish_run(run: ReadyRun, snapshot: Snapshot) -> None:
    """Give a run of a stack, at its end, a checkpoint of its own.

    Raises:
        OSError: it cannot be written.
    """
    snapshot.of([run]).save(own_file(run))
    (run.folder / POINTER).unlink(missing_ok=True)


def forget(runs: Sequence[ReadyRun]) -> None:
    """Remove the checkpoints of stacks all of whose runs are among these and need them no more.

    A run that failed continues from there once the cause is gone, unless it diverged: it would
    diverge again.
    """
    places: dict[Path, None] = {}
    for run in runs:
        places[run.folder.parent] = None
        places[run.folder.parent.parent] = None
    folders = [place / STACKS for place in places if (place / STACKS).is_dir()]
    if not folders:
        return
    settled = {run.hash for run in runs if is_settled(run.folder)}
    for folder in folders:
        paths = list(filter(Path.is_file, folder.glob("*.ckpt"))) if settled else []
        for path in paths:
            _, members = contents(path)
            if members and members.keys() <= settled:
                path.unlink(missing_ok=True)
        with suppress(OSError):  # others are in there
            folder.rmdir()


def last_step(run: ReadyRun) -> int:
    """Read the step that a run would continue from; 0 for its beginning."""
    path = _located(run)
    return contents(path)[0] if path else 0


def has_lost_rows(run: ReadyRun) -> bool:
    """Return whether rows that a run wrote before its latest checkpoint are gone or changed."""
    path = _located(run)
    rows = contents(path)[1].get(run.hash) if path else None
    return rows is not None and not rows.begins(run.folder / ROW_FILE)


def contents(path: Path) -> tuple[int, Mapping[str, Checksum]]:
    """Read the step of a checkpoint and, by hash, the rows of its runs.

    They are 0 and none if it cannot be read. Reading one with a hundred runs takes a second, so the
    result stays in memory until the file is replaced.
    """
    try:
        status = path.stat()
    except OSError:  # gone
        return 0, {}
    return _contents(path, (status.st_ino, status.st_size, status.st_mtime_ns))


@functools.lru_cache(maxsize=1024)
def _contents(path: Path, stamp: tuple[int, int, int]) -> tuple[int, Mapping[str, Checksum]]:
    snapshot = Snapshot.load(path, glance=True)
    if snapshot is None:
        return 0, {}
    return snapshot.step, {name: Checksum(**state["rows"]) for name, state in snapshot.runs.items()}


def _pointed(run: ReadyRun) -> Path | None:
    try:
        content: Mapping[str, Any] = read_json(run.folder / POINTER)
        return Path(os.path.normpath(run.folder.absolute() / str(content["checkpoint"])))
    except (OSError, ValueError, KeyError, TypeError):  # none, or cut short
        return None


def _located(run: ReadyRun) -> Path | None:
    """Find the file with a run's latest state, or return None if there is none."""
    for path in (_pointed(run), own_file(run)):
        if path and os.path.exists(path):
            return path
    return None

"""The result row, the run identity, and the file they are kept in.

Everything that dgbench reports is a function of rows. A row file (``errors.jsonl``) holds one JSON object per
line: the identity of the run that wrote it and one counted error. No torch here: reports run on a login node.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

ROW_FILE = "errors.jsonl"
PROGRESS_FILE = "progress.json"  # how far a run is, and when that was last said
PLAN_FILE = "planned.json"  # in a job's folder: the run folders that it means to fill
IDENTITY_FILE = "identity.json"  # of what code, packages, machine and data a run is made


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """Who wrote a row: one member, i.e. one trained model (fold x seed x hyperparameters)."""

    run: str  #: hash of the member's resolved configuration less machine keys
    dataset: str  #: name of the dataset, e.g. ``sr_cmnist``
    variant: dict[str, Any]  #: what distinguishes this form of the dataset (ratio, scale, resolution, ...)
    base: str  #: base images, e.g. ``mnist`` or ``digits``; reports never mix two
    evaluation: str  #: ``exact`` or ``sampled`` errors
    data_seed: int  #: images dealt to environments, label noise, spurious features
    split_seed: int  #: train/val split
    given: list[str]  #: names of the given environments, in order
    algorithm: str
    hparams: dict[str, Any]  #: the algorithm's and the optimizer's hyperparameters
    draw: int = 0  #: number of the hyperparameter draw; 0 is the default set
    space: str = "domainbed"  #: search space that the draw is from
    trial: int = 0  #: repetition of the search that the draw is from
    backbone: str
    init: str = "random"  #: initial weights
    tuning: str = "ft"  #: ``ft`` fine-tuning, ``lp`` linear probing, ``freezeK`` with K frozen stages
    n_parameters: int | None = None  #: of all networks together; None in rows older than the key
    n_trainable: int | None = None  #: of them, those that training changes
    protocol: str
    fold: str  #: ``0``, ``1``, ... or ``full``
    held_out: list[str]  #: given environments this member never trained on (flexible: of which it lacks some class)
    folds: list[list[str]] | None = None  #: tested environments of every fold; None: one each (loo) or all others
    seed: int
    averaging: str = "none"  #: what averages the weights over steps, ``none``, ``swad``, ``eoa``, ...
    beyond: bool = True  #: whether environments besides the given ones exist, as the ideal measure needs
    grouped: bool = False  #: predictions depend on what is scored together: ``test`` sampled even if ``exact``
    code: str  #: version of dgbench, with the commit where it is known


@dataclass(frozen=True, kw_only=True)
class Row:
    """One counted error: how one member did on one subset of one environment at one step."""

    identity: RunIdentity = field(repr=False)
    step: int  #: optimizer updates done
    env: str  #: environment scored
    subset: str  #: ``train``, ``val`` or ``test``
    held_out: bool  #: True when the member never trained on this environment (flexible: on these classes of it)
    seen: int  #: images scored
    wrong: float  #: images misclassified; the expected count when the evaluation is exact
    loss: float  #: mean cross entropy in nats

    @property
    def error(self) -> float:
        """Fraction wrong, in [0, 1]."""
        return self.wrong / self.seen

    def to_json(self) -> str:
        """The row as one line, identity included, without the line end."""
        flat = asdict(self.identity)
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "identity"}
        own["env_held_out"] = own.pop("held_out")
        return json.dumps({**flat, **own}, separators=(",", ":"))


@dataclass(frozen=True)
class RowProblem:
    """A line that could not be used, and why."""

    file: str
    line: int  #: 1-based
    reason: str


def write_whole(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees the old text or the new one, whoever else writes it.

    Raises:
        OSError: it cannot be written; the old text stays.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Append rows to a file in one write and force them to disk.

    A torn last line, left by a crash or a full disk, is cut off first, so rows never run into each other.

    Raises:
        OSError: the file cannot be written; what was there before stays readable.
    """
    text = "".join(row.to_json() + "\n" for row in rows)
    with open(path, "ab+") as handle:
        size = handle.seek(0, os.SEEK_END)
        if size:
            handle.seek(size - 1)
            if handle.read(1) != b"\n":
                handle.seek(0)
                whole = handle.read()
                handle.truncate(whole.rfind(b"\n") + 1)
        handle.write(text.encode())
        handle.flush()
        os.fsync(handle.fileno())


def read_rows(path: Path) -> tuple[list[dict[str, Any]], list[RowProblem]]:
    """All whole rows of a file as flat dictionaries, and the lines that had to be dropped.

    Keys are those of :class:`RunIdentity` and :class:`Row`; whether the *environment* was held out stands under
    ``env_held_out``, the list of all held-out environments under ``held_out``. A key that a row lacks because it is
    older than the key gets its default.
    """
    rows: list[dict[str, Any]] = []
    problems: list[RowProblem] = []
    for number, line in _numbered_lines(path):
        try:
            row = json.loads(line)
            missing = _ROW_KEYS - row.keys()
        except (ValueError, AttributeError):
            problems.append(RowProblem(str(path), number, "not a whole JSON object (half-written?)"))
            continue
        if missing <= DEFAULTS.keys():
            rows.append({**DEFAULTS, **row} if missing else row)
        else:
            problems.append(RowProblem(str(path), number, f"lacks {', '.join(sorted(missing - DEFAULTS.keys()))}"))
    return rows, problems


def row_of(flat: dict[str, Any]) -> Row:
    """A flat dictionary, as :func:`read_rows` gives it, as a row again."""
    identity = RunIdentity(**{f.name: flat[f.name] for f in fields(RunIdentity)})
    own = {f.name: flat[f.name] for f in fields(Row) if f.name not in ("identity", "held_out")}
    return Row(identity=identity, held_out=flat["env_held_out"], **own)


def keep_rows_until(path: Path, step: int) -> list[RowProblem]:
    """Drop rows later than ``step``, atomically: a resumed run writes them again.

    Returns:
        The torn lines, which are dropped too.
    """
    if not path.exists():
        return []
    _, torn = read_rows(path)
    unusable = {problem.line for problem in torn}
    kept = [line for number, line in _numbered_lines(path) if number not in unusable and _step_of(line) <= step]
    partial = path.with_suffix(".partial")
    partial.write_bytes(b"".join(line + b"\n" for line in kept))
    os.replace(partial, path)
    return torn


#: what keys of an identity mean that a row lacks because it is older than they are
DEFAULTS = {f.name: f.default for f in fields(RunIdentity) if f.default is not MISSING}
_ROW_KEYS = {f.name for f in (*fields(RunIdentity), *fields(Row)) if f.name != "identity"} | {"env_held_out"}


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with open(path, "rb") as handle:
        for number, line in enumerate(handle, start=1):
            if line.strip():
                yield number, line.rstrip(b"\n")


def _step_of(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, TypeError):
        return float("inf")

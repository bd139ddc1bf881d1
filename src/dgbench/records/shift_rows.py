"""Estimates of dataset shift as rows: a line of ``shifts.jsonl`` tells how far two sides are apart.

No torch is imported here: reports run on a login node.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from dgbench.records.checks import BY_TYPE, Check, first_fault
from dgbench.records.files import append_lines, read_regular
from dgbench.records.rows import SHIFT_FILE as SHIFT_FILE
from dgbench.records.rows import RowProblem

TRIAL = "trial"
HALF = "half"
KINDS = (TRIAL, HALF)
NO_NULL = "none"
HALVES = "halves"
LABELS = "labels"
NULLS = (NO_NULL, HALVES, LABELS)


@dataclass(frozen=True, kw_only=True)
class ShiftIdentity:
    """What the estimates of one folder have in common."""

    run: str  #: hash of what is estimated and how; all lines of a folder have the same
    dataset: str  #: name of the dataset, e.g. ``pacs``
    variant: dict[str, Any]  #: what distinguishes this form of the dataset (ratio, scale, ...)
    base: str  #: base images, e.g. ``mnist``
    evaluation: str  #: as in ``errors.jsonl``
    data_seed: int  #: which images an environment gets, label noise, spurious features
    split_seed: int  #: train/val split
    given: list[str]  #: names of the given environments, in order
    content: str = ""  #: hash of the images' files, if the dataset has any
    backbone: str  #: network that makes features of images
    init: str  #: its initial weights
    #: ``frozen``: of the initial weights; ``trained``: the network learns with the estimator
    features: str
    images: str  #: subsets of images that count: ``all`` or ``train``
    estimator: str  #: ``joint``, ``ood_bench``, ``distances``, ``concept`` or ``frechet``
    settings: dict[str, Any]  #: every key of the estimator
    seed: int  #: subsampling, splits, initial weights and minibatches
    code: str  #: version of dgbench that wrote the row, with the commit if it is known


@dataclass(frozen=True, kw_only=True)
class ShiftRow:
    """One estimate: how far the environments of p are from those of q."""

    identity: ShiftIdentity = field(repr=False)
    #: how p and q were chosen: ``folds`` of the protocol, ``each`` two environments, ``reference``
    pairs: str
    pair: str  #: name of the pair among those: the fold's, or ``A|B``
    p: list[str]  #: environments pooled as p; ``reference`` for pretraining images
    q: list[str]  #: environments pooled as q
    kind: str  #: ``trial``: on all images; ``half``: on half of either side's, for intervals
    number: int  #: of the trial or half, from 0
    #: ``none``; ``halves``: two halves of p and q together; ``labels``: labels shuffled on either
    #: side
    null: str
    n: list[int]  #: images of p and q that count, after balancing
    classes: list[str]  #: classes that count
    dropped: dict[str, list[int]]  #: classes left out, each with its images in p and in q
    values: dict[str, float]  #: the estimate; empty if it was refused
    #: how well the estimator did its work, e.g. accuracy of a classifier
    diagnostics: dict[str, float]
    #: true values, if the dataset's construction tells them
    exact: dict[str, float] = field(default_factory=dict)
    #: what a reader must know of this estimate, one line each
    flags: list[str] = field(default_factory=list)
    refused: str = ""  #: why there are no values, in one line; empty if there are
    seconds: float  #: of computation, its part of what was computed together
    together: int = 1  #: classifiers that trained as one stack

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """Tells it from the other rows of its folder."""
        return self.pairs, self.pair, self.kind, self.number, self.null

    def to_json(self) -> str:
        """Format the row as one line, identity included, without the line end."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "identity"}
        return json.dumps({**asdict(self.identity), **values}, separators=(",", ":"))


_IDENTITY = {f.name for f in fields(ShiftIdentity)}


def _checks() -> dict[str, Check]:
    """Choose the check of every key of a line by the type that its field declares."""
    kinds = {**get_type_hints(ShiftIdentity), **get_type_hints(ShiftRow)}
    return {name: BY_TYPE[kind] for name, kind in kinds.items() if name != "identity"}


_CHECKS = _checks()
_OPTIONAL = {"content", "exact", "flags", "refused", "together"}


def append_shift_rows(path: Path, rows: Iterable[ShiftRow]) -> None:
    """Append rows to a file, see :func:`~dgbench.records.files.append_lines`.

    Raises:
        OSError: the file cannot be written; what was there before stays readable.
    """
    append_lines(path, (row.to_json() for row in rows))


def read_shift_rows(path: Path) -> tuple[list[ShiftRow], list[RowProblem]]:
    """Read the good rows of a file, and the lines that had to be dropped.

    Of rows with one key the last counts.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    rows: dict[tuple[str, str, str, int, str], ShiftRow] = {}
    problems = []
    for number, line in enumerate(read_regular(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = _row(json.loads(line))
        except (ValueError, RecursionError) as error:  # the latter of lists in lists in lists
            problems.append(RowProblem(str(path), number, f"no estimate of shift: {error}"))
        else:
            rows[row.key] = row
    return list(rows.values()), problems


def _row(flat: Any) -> ShiftRow:
    if not isinstance(flat, dict):
        raise ValueError("not a JSON object")
    lacking = sorted(_CHECKS.keys() - flat.keys() - _OPTIONAL)
    if lacking:
        raise ValueError(f"{lacking[0]} is missing")
    fault = first_fault(flat, _CHECKS)
    if fault:
        raise ValueError(fault)
    of_identity = {name: flat[name] for name in _IDENTITY & flat.keys()}
    others = {name: flat[name] for name in (_CHECKS.keys() & flat.keys()) - _IDENTITY}
    row = ShiftRow(identity=ShiftIdentity(**of_identity), **others)
    if row.kind not in KINDS or row.null not in NULLS or row.number < 0:
        raise ValueError(f"kind={row.kind}, null={row.null}, number={row.number}")
    return row

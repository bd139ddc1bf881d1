"""Records of DomainBed's logs: those of one run, from the lines of a file of many or of its own.

A sweep has two million lines, nearly all of them whole, and alike within a run: the lines of a run
are parsed together. Where one of them is damaged or differs they are parsed one by one, which says
what is wrong with which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dgbench.errors import RecordError
from dgbench.records.checks import (
    LARGEST_COUNT,
    Check,
    first_fault,
    list_of,
    optional,
    plain_mapping,
    printable_text,
    shown,
    whole,
)
from dgbench.reports.importers.logs import RESULTS, decoded, fractions
from dgbench.reports.reading.row_files import Fault

_ACCURACY = re.compile(r"env\d+_(in|out)_acc")
_SECOND = "fd_"  # before the keys of the second training of train_autolr.py
_SECOND_ACCURACY = f"{_SECOND}env0_in_acc"
_FIRST_ACCURACY = b'"env0_in_acc"'
_HPARAMS = b'"hparams": {'
_INDICES = list_of(whole(0, 1000))
_RECORD_CHECKS: dict[str, Check] = {"hparams": optional(plain_mapping), "args": plain_mapping}
_ARGS_CHECKS: dict[str, Check] = {
    "dataset": printable_text,
    "algorithm": printable_text,
    "test_envs": _INDICES,
    "val_envs": optional(_INDICES),
    "hparams_seed": whole(),
    "trial_seed": whole(),
}
_STEP = whole(0, LARGEST_COUNT)


@dataclass(frozen=True)
class Records:
    """What can be used of the records of one run."""

    first: Mapping[str, Any]  #: the first record, with ``args`` and ``hparams``
    keys: Sequence[str]  #: ``env0_in_acc``, ``env0_out_acc``, ``env1_in_acc``, ...
    steps: NDArray[np.int32]  #: sorted, each once
    accuracy: NDArray[np.float64]  #: [step, key], in [0, 1] or NaN
    repeated: int = 0  #: records of a step that a later one replaced


class Repeated(NamedTuple):
    """What the lines of a run repeat, empty where they do not."""

    head: bytes = b""  #: ``{"args": {...}, `` at the beginning
    hparams: bytes = b""  #: ``"hparams": {...}, `` somewhere behind


NOTHING = Repeated()


def lines_of_runs(handle: Iterable[bytes]) -> Iterator[tuple[int, list[bytes], Repeated]]:
    """Iterate over the runs of a file: the number of the first line, the lines, what they repeat.

    DomainBed sorts the keys of a record, so that all of a run begin alike, with their ``args``, and
    repeat the ``hparams`` behind the accuracies. Lines that do not begin so are parsed; one that is
    damaged belongs to the run in which it stands.
    """
    start = 1
    lines: list[bytes] = []
    head = b""
    hparams = b""
    args: Any = None
    for number, line in enumerate(handle, start=1):
        if head and line.startswith(head):
            lines.append(line)
            continue
        record = record_in(line) or {}
        if "args" in record and args is not None and not _continues(record, args):
            yield start, lines, Repeated(head, hparams)
            start = number
            lines = []
            args = None
            head = b""
        lines.append(line)
        if args is None and "args" in record:
            args = record["args"]
            head = _head_of(line)
            hparams = _hparams_of(line[len(head) :]) if head else b""
    if lines:
        yield start, lines, Repeated(head, hparams)


def is_continued(first: bytes, line: bytes) -> bool:
    """Tell by its beginning that a line is of the run of the first one; False may be either."""
    head = _head_of(first)
    return bool(head) and line.startswith(head)


def record_in(line: bytes) -> dict[str, Any] | None:
    """Parse a line as one JSON object; None if it is none."""
    try:
        return decoded(line)
    except RecordError:
        return None


def _continues(record: Mapping[str, Any], args: Any) -> bool:
    """Tell whether a record is of the run with these args, or of its second training."""
    if _SECOND_ACCURACY in record and isinstance(args, dict):
        return bool(record["args"] == {**args, "holdout_fraction": 0.0})
    return bool(record["args"] == args)


def _head_of(line: bytes) -> bytes:
    """Return how all lines of a run begin; empty if its keys are in another order."""
    head = line[: max(line.find(_FIRST_ACCURACY), 0)]
    return head if head.startswith(b'{"args": {') else b""


def _hparams_of(rest: bytes) -> bytes:
    """Return the hyperparameters of a record as they stand there, with the comma behind them.

    Args:
        rest: a whole record, without its args.

    Returns:
        Nothing where another key does not follow them, or they nest.
    """
    start = rest.find(_HPARAMS)
    end = rest.find(b"}, ", start)
    text = rest[start : end + 3]
    is_whole = start >= 0 and end >= 0 and b"{" not in text[len(_HPARAMS) :]
    return text if is_whole and record_in(b"{" + text[:-2] + b"}") else b""


def records_of(
    lines: Sequence[bytes], start: int = 1, repeated: Repeated = NOTHING
) -> tuple[Records | None, list[Fault]]:
    """Read the records of a run, and list what cannot be used.

    Args:
        lines: of the run.
        start: number of the first line.
        repeated: what the lines repeat, of :func:`lines_of_runs`, which need not be parsed again.

    Returns:
        The records, None where there is none; of two trainings one record. And the faults.

    Raises:
        RecordError: of two trainings the file holds the first alone.
    """
    together = _parsed_together(lines, repeated)
    if together is not None:
        return together, []
    records, faults = _parsed_apart(lines, start)
    if not records:
        return None, faults
    # the later one wins: a run that was started again
    by_step = {record["step"]: record for record in records}
    steps = sorted(by_step)
    keys = _accuracy_keys(records[0])
    accuracy = [fractions(by_step[step], keys) for step in steps]
    return Records(
        records[0],
        keys,
        np.array(steps, dtype=np.int32),
        np.array(accuracy, dtype=np.float64),
        len(records) - len(by_step),
    ), faults


def _parsed_together(lines: Sequence[bytes], repeated: Repeated) -> Records | None:
    """Parse the lines of a run at once; None unless all are whole, and alike, and of rising steps.

    Many times cheaper than line by line, and the same where there is a result.
    """
    try:
        records = json.loads((b"[" + b",".join(_shortened(lines, repeated)) + b"]").decode())
    except (ValueError, RecursionError):
        return None
    is_each = len(records) == len(lines) and set(map(type, records)) == {dict}
    if not is_each or not _are_of_one_training(records):
        return None
    try:
        keys = _accuracy_keys(records[0])
        values = list(map(itemgetter(*keys), records))
        steps = [record["step"] for record in records]
    except (RecordError, KeyError):
        return None
    if set(map(type, steps)) != {int} or not set(map(type, chain(*values))) <= {int, float}:
        return None
    accuracy = np.array(values)
    rising = all(step < later for step, later in pairwise(steps))
    if not rising or _STEP(steps[0]) or _STEP(steps[-1]):
        return None
    if not ((accuracy >= 0) & (accuracy <= 1)).all():
        return None
    accuracy = accuracy.astype(np.float64, copy=False)
    return Records(records[0], keys, np.array(steps, dtype=np.int32), accuracy)


def _shortened(lines: Sequence[bytes], repeated: Repeated) -> Iterable[bytes]:
    """Leave out what lines repeat, of all but the first one."""
    head, hparams = repeated
    if not head or not hparams:
        return lines
    shortened = [lines[0]]
    for line in lines[1:]:
        place = line.find(_HPARAMS, len(head))
        if place >= 0 and line.startswith(head) and line.startswith(hparams, place):
            line = b"{" + line[len(head) : place] + line[place + len(hparams) :]
        shortened.append(line)
    return shortened


def _are_of_one_training(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all records have the args of the first one or none, and no second training."""
    args = records[0].get("args")
    if not isinstance(args, dict) or args.get("auto_lr"):
        return False
    return not any(
        record.get("args", args) != args or _SECOND_ACCURACY in record for record in records
    )


def _parsed_apart(lines: Sequence[bytes], start: int) -> tuple[list[dict[str, Any]], list[Fault]]:
    """Parse the records that can be used, and list what cannot; one record where there was a second
    training.

    Raises:
        RecordError: of two trainings the file holds the first alone.
    """
    records: list[dict[str, Any]] = []
    second: dict[str, Any] = {}
    faults: list[Fault] = []
    keys: list[str] = []
    for number, line in enumerate(lines, start=start):
        try:
            record = decoded(line)
            final = bool(records) and _SECOND_ACCURACY in record
            keys = keys if records else _accuracy_keys(record)
            expected = [_SECOND + key for key in keys[::2]] if final else keys
            _check_args(record, records, final)
            if not record.keys() >= {"step", *expected}:
                missing = [key for key in ("step", *expected) if key not in record]
                raise RecordError(f"lacks {', '.join(missing)}")
            wrong = _STEP(record["step"])
            if wrong:
                raise RecordError(f"step {wrong}")
        except RecordError as error:
            faults.append(Fault("dropped line", number, str(error)))
            continue
        if final:
            second = record
        else:
            records.append(record)
        values = fractions(record, expected)
        if any(value != value for value in values):
            bad = [key for key, value in zip(expected, values, strict=True) if value != value]
            reason = f"{bad[0]} is {shown(record[bad[0]])}, no fraction in [0, 1]"
            addition = f", and so {len(bad) - 1} more" if bad[1:] else ""
            faults.append(Fault("dropped accuracy", number, reason + addition))
    if second:
        accuracies = {key: second[_SECOND + key] for key in keys[::2]}
        records = [
            {**records[-1], "args": records[0]["args"], **accuracies, "step": second["step"]}
        ]
    elif records and records[0]["args"].get("auto_lr"):
        raise RecordError(
            f"{RESULTS} holds the first training of train_autolr.py alone; let the second one end"
        )
    return records, faults


def _check_args(
    record: Mapping[str, Any], records: Sequence[Mapping[str, Any]], final: bool
) -> None:
    """Refuse a record of other args than the first one of its run.

    Args:
        record: with or without ``args``.
        records: those before it.
        final: whether it is of a second training, on all images.

    Raises:
        RecordError: they differ.
    """
    if not records or record.get("args") is None:
        return
    expected = records[0]["args"]
    if final:
        expected = {**expected, "holdout_fraction": 0.0}
    if record["args"] != expected:
        raise RecordError("other args than the lines before")


def _accuracy_keys(record: dict[str, Any]) -> list[str]:
    """List ``env0_in_acc``, ``env0_out_acc``, ``env1_in_acc``, ... as far as they are consecutive.

    Raises:
        RecordError: the record does not say who wrote it, has no accuracy, or skips an environment.
    """
    wrong = "lacks args" if "args" not in record else first_fault(record, _RECORD_CHECKS)
    if wrong:
        raise RecordError(wrong)
    args = record["args"]
    missing = [key for key in ("dataset", "algorithm", "test_envs") if key not in args]
    if missing:
        raise RecordError(f"lacks {', '.join(missing)} in args")
    wrong = first_fault(args, _ARGS_CHECKS)
    if wrong:
        raise RecordError(wrong)
    keys: list[str] = []
    while f"env{len(keys) // 2}_out_acc" in record:
        keys += [f"env{len(keys) // 2}_in_acc", f"env{len(keys) // 2}_out_acc"]
    if not keys:
        raise RecordError("lacks env0_out_acc")
    stray = [key for key in record if _ACCURACY.fullmatch(key) and key not in keys]
    if stray:
        raise RecordError(f"has {stray[0]} and lacks env{len(keys) // 2}_out_acc")
    return keys

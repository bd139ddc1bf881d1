"""One folder of a DomainBed sweep: its records and its ``done`` marker."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.errors import RecordError
from dgbench.records.files import open_regular
from dgbench.records.rows import (
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
from dgbench.reports.importers.domainbed_identity import identity_of
from dgbench.reports.reading.folders import Problem, printable
from dgbench.reports.reading.row_files import Fault, bounded
from dgbench.reports.reading.runs import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESULTS = "results.jsonl"
_ACCURACY = re.compile(r"env\d+_(in|out)_acc")

_ENVIRONMENTS = list_of(whole(0, 1000))
_RECORD_CHECKS: dict[str, Check] = {"hparams": optional(plain_mapping), "args": plain_mapping}
_ARGS_CHECKS: dict[str, Check] = {
    "dataset": printable_text,
    "algorithm": printable_text,
    "test_envs": _ENVIRONMENTS,
    "val_envs": optional(_ENVIRONMENTS),
    "hparams_seed": whole(),
    "trial_seed": whole(),
}
_STEP = whole(0, LARGEST_COUNT)


@dataclass(frozen=True)
class Sweep:
    """What one folder holds: a run and its accuracies."""

    run: Run
    steps: NDArray[np.int32]
    accuracy: NDArray[np.float64]  #: [record, in and out of each environment]; NaN where there is none
    held_out: tuple[int, ...]  #: indices of the environments never trained on


@dataclass
class _Records:
    """The records of one file."""

    first: dict[str, Any]
    keys: list[str]  #: of accuracies, in order
    found: dict[int, list[float]]  #: step -> accuracies
    repeated: int
    faults: list[Fault]


def read_sweep(
    folder: str, problems: list[Problem], require_done: bool, setting: tuple[str, str], names: Sequence[str] | None
) -> Sweep | None:
    """The run of one folder; None where it holds no record. Whatever is left out is added to ``problems``.

    Args:
        folder: with ``results.jsonl``.
        problems: receives what is left out.
        require_done: a run without a ``done`` marker is not finished.
        setting: what tables call the network and its initial weights.
        names: of the environments; None takes those of the dataset.

    Raises:
        RecordError: the folder is no run.
        OSError: its file cannot be read, or is no regular file.
    """
    file = Path(folder, RESULTS)
    with open_regular(file) as handle:
        records = _records(handle.readlines())
    problems += [fault.in_file(file) for fault in bounded(records.faults)]
    found, keys = records.found, records.keys
    if not found:
        problems.append(Problem("run without records", printable(folder), f"{RESULTS} holds no whole record"))
        return None
    args = records.first["args"]
    held_out = tuple(sorted({*args["test_envs"], *(args.get("val_envs") or [])}))
    identity = identity_of(records.first, held_out, len(keys) // 2, setting, names)
    if records.repeated:
        why = f"{records.repeated} steps were recorded twice; the later ones are used"
        problems.append(Problem("repeated records", printable(file), why))
    done = os.path.exists(f"{folder}/done")
    status = "DONE" if done or not require_done else "UNKNOWN"
    if not done:
        what = "left out; import.require_done=false uses it" if require_done else "used all the same"
        problems.append(Problem("no done marker", printable(folder), f"last record at step {max(found)}; {what}"))
    steps = sorted(found)
    accuracy = np.array([found[step] for step in steps], dtype=np.float64)
    count = int(np.isfinite(accuracy).sum())
    run = Run(printable(folder), identity, status, "" if done else "no done marker", max(found), count)
    return Sweep(run, np.array(steps, dtype=np.int32), accuracy, held_out)


def _records(lines: Sequence[bytes]) -> _Records:
    records = _Records({}, [], {}, 0, [])
    constant: list[bytes] = []
    for number, line in enumerate(lines, start=1):
        try:
            for text in constant:
                line = line.replace(text, b"null", 1)
            record = _decoded(line)
            if not records.first:
                records.keys, constant = _accuracy_keys(record), _constant(line, ("args", "hparams"))
                records.first = record
            elif record.get("args") not in (None, records.first["args"]):
                raise RecordError("other args than the lines before")
            if missing := [key for key in ("step", *records.keys) if key not in record]:
                raise RecordError(f"lacks {', '.join(missing)}")
            if wrong := _STEP(record["step"]):
                raise RecordError(f"step {wrong}")
        except RecordError as error:
            records.faults.append(Fault("dropped line", number, str(error)))
            continue
        records.repeated += record["step"] in records.found
        values = [_accuracy(record[key]) for key in records.keys]
        records.found[record["step"]] = values  # the later line wins: a run that was started again
        if bad := [key for key, value in zip(records.keys, values, strict=True) if value != value]:
            why = f"{bad[0]} is {shown(record[bad[0]])}, no fraction in [0, 1]"
            more = f", and so {len(bad) - 1} more" if bad[1:] else ""
            records.faults.append(Fault("dropped accuracy", number, why + more))
    return records


def _accuracy(value: Any) -> float:
    """An accuracy in [0, 1]; NaN for anything else."""
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else float("nan")


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        record = None
    if type(record) is not dict:
        raise RecordError("not a whole JSON object (half-written?)")
    return record


def _constant(line: bytes, keys: Sequence[str]) -> list[bytes]:
    """The text of those values: every line of a run repeats it, and need not parse it again."""
    text = line.decode()
    found = []
    for key in keys:
        start = text.find(f'"{key}": {{')
        if start >= 0:
            start += len(key) + 4
            found.append(text[start : json.JSONDecoder().raw_decode(text, start)[1]].encode())
    return [value for value in found if line.count(value) == 1]


def _accuracy_keys(record: dict[str, Any]) -> list[str]:
    """``env0_in_acc``, ``env0_out_acc``, ``env1_in_acc``, ... as far as they are consecutive.

    Raises:
        RecordError: the record does not say who wrote it, or has no accuracy.
    """
    wrong = "lacks args" if "args" not in record else first_fault(record, _RECORD_CHECKS)
    if not wrong and (missing := [key for key in ("dataset", "algorithm", "test_envs") if key not in record["args"]]):
        wrong = f"lacks {', '.join(missing)} in args"
    if wrong := wrong or first_fault(record["args"], _ARGS_CHECKS):
        raise RecordError(wrong)
    keys: list[str] = []
    while f"env{len(keys) // 2}_out_acc" in record:
        keys += [f"env{len(keys) // 2}_in_acc", f"env{len(keys) // 2}_out_acc"]
    if not keys:
        raise RecordError("lacks env0_out_acc")
    if beyond := [key for key in record if _ACCURACY.fullmatch(key) and key not in keys]:
        raise RecordError(f"has {beyond[0]} and lacks env{len(keys) // 2}_out_acc")
    return keys

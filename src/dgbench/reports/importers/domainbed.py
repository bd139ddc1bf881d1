"""DomainBed's sweeps: folders with ``results.jsonl``, one JSON object a line, and a ``done``
marker.

DomainBed splits every environment i into a large ``in`` and a small ``out`` part and records the
accuracy on both. What they are for depends on whether the run trained on i, and that is how they
become our subsets:

===============  ===================================  ==========================================
record key       i was trained on                     i was held out
===============  ===================================  ==========================================
env{i}_in_acc    ``train``                            ``test``: the accuracy that tables report
env{i}_out_acc   ``val``: training-domain validation  ``val``: what the oracle looks at
===============  ===================================  ==========================================

Records do not say how many images were seen, so ``seen`` is 1 and ``wrong`` the error; the accuracy
as read stands in a column of its own. One that is no fraction in [0, 1] is named and left out; for
validation it counts as NaN, which loses to every accuracy, as in DomainBed. The trial is the seed:
it decides DomainBed's splits, too. There is no model of all environments.

A path may also be one file that holds the records of many runs, those of a run one after the other,
as ``cat */results.jsonl`` writes it; it has no ``done`` markers.

``train_autolr.py`` (ERM++) trains twice: with validation, to find the learning rates, and then on
all images of the training environments. The records of the second training have
``fd_env{i}_in_acc`` alone. As in ``collect_results --auto_lr``, its last accuracies are the result,
and those on ``out`` of the first training's last record validate it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from dgbench.reports.importers import IMPORTED, swad
from dgbench.reports.importers.logs import (
    RESULTS,
    LoggedRun,
    SweepDescription,
    decoded,
    fractions,
    identity_of,
    rows_of,
    without_duplicates,
)
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import ASSUMED, Problem, printable, searched
from dgbench.reports.reading.row_files import Fault, Run, bounded

_ACCURACY = re.compile(r"env\d+_(in|out)_acc")
_SECOND = "fd_"  # before the keys of the second training of train_autolr.py
_FIRST_ACCURACY = b'"env0_in_acc"'
_LOOKED_AT = 10  # lines, to tell whose records they are
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


def read_domainbed(
    path: str | Path | None,
    require_done: bool = True,
    backbone: str = "domainbed",
    init: str = "domainbed",
    environments: Sequence[str] | None = None,
) -> Collection:
    """Read every ``results.jsonl`` under a folder, of DomainBed or of SWAD's code family
    (:mod:`.swad`).

    Args:
        path: folder of the sweep, or a file of many runs.
        require_done: leave out runs without a ``done`` marker; DomainBed's own collector takes
            them.
        backbone: what tables call the network; DomainBed chooses it by dataset and does not record
            it.
        init: what tables call the initial weights.
        environments: names of the environments, in order; by default those of the known datasets,
            else env0, env1, ...

    Raises:
        RecordError: there is no folder, or no run in it.
    """
    if path is None:
        raise RecordError(
            "no folder to import; name that of a DomainBed sweep with import.path=DIR"
        )
    problems: list[Problem] = []
    if os.path.isfile(path):
        setting = SweepDescription(backbone, init, environments, require_done)
        return _read_file(Path(path), setting, problems)
    inside = searched(Path(path), (RESULTS,), problems) if os.path.isdir(path) else ()
    folders = sorted(folder for folder, files in inside if files)
    if not folders:
        clue = (
            f" ({problems[0].kind} {problems[0].where}: {problems[0].reason})" if problems else ""
        )
        raise RecordError(
            f"no {RESULTS} under {path}{clue}; name the folder of a DomainBed sweep with "
            "import.path=DIR"
        )
    setting = SweepDescription(backbone, init, environments, require_done)
    runs: list[LoggedRun] = []
    folds: list[swad.LoggedFold] = []
    for folder in folders:
        try:
            _read_folder(folder, setting, runs, folds, problems)
        except (RecordError, OSError) as error:
            reason = (
                str(error)
                if isinstance(error, RecordError)
                else f"{RESULTS}: {error.strerror}; make it readable"
            )
            problems.append(Problem("folder left out", printable(folder), reason))
    runs += swad.runs_of(folds, setting, problems)
    if not runs:
        raise RecordError(
            f"none of the {len(folders)} files {RESULTS} under {path} holds a run; the first "
            f"fault: {problems[0].where}: {problems[0].reason}"
        )
    runs = without_duplicates(runs, problems)
    return Collection([logged.run for logged in runs], rows_of(runs), problems, [])


def _read_file(file: Path, setting: SweepDescription, problems: list[Problem]) -> Collection:
    """Read a file of many runs, one run at a time: it may be larger than memory.

    Raises:
        RecordError: done markers are asked for, which it has not; it cannot be read; or it holds no
            run.
    """
    if setting.require_done:
        raise RecordError(
            f"{file} is a file, which has no done markers; add import.require_done=false to take "
            "the runs as they are"
        )
    runs: list[LoggedRun] = []
    label = printable(str(file))
    try:
        with open_regular(file) as handle:
            for start, lines in _lines_of_runs(handle):
                try:
                    logged = _read_run(f"{file}:{start}", lines, problems, setting, start)
                except RecordError as error:
                    problems.append(Problem("run left out", f"{label}:{start}", str(error)))
                    continue
                if logged is not None:
                    runs.append(logged)
    except OSError as error:
        raise RecordError(f"{label}: {error.strerror}; make it readable") from None
    if not runs:
        reason = f"{problems[0].where}: {problems[0].reason}" if problems else "it is empty"
        raise RecordError(f"{label} holds no run of DomainBed; the first fault: {reason}")
    problems.append(Problem(ASSUMED, label, f"{len(runs):,} runs without done markers"))
    runs = without_duplicates(runs, problems)
    return Collection([logged.run for logged in runs], rows_of(runs), problems, [])


def _lines_of_runs(handle: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Iterate over the runs of a file: the number of the first line, and the lines.

    DomainBed sorts the keys of a record, so that all of a run begin alike, with their ``args``:
    these are left out of all lines but the first one. Other lines are parsed; one that is damaged
    belongs to the run in which it stands.
    """
    start = 1
    lines: list[bytes] = []
    head = b""
    args: Any = None
    for number, line in enumerate(handle, start=1):
        if head and line.startswith(head):
            lines.append(b"{" + line[len(head) :])
            continue
        record = _or_nothing(line) or {}
        if "args" in record and args is not None and not _continues(record, args):
            yield start, lines
            start = number
            lines = []
            args = None
        lines.append(line)
        if args is None and "args" in record:
            args = record["args"]
            head = _head_of(line)
    if lines:
        yield start, lines


def _continues(record: Mapping[str, Any], args: Any) -> bool:
    """Tell whether a record is of the run with these args, or of its second training."""
    if f"{_SECOND}env0_in_acc" in record and isinstance(args, dict):
        return bool(record["args"] == {**args, "holdout_fraction": 0.0})
    return bool(record["args"] == args)


def _head_of(line: bytes) -> bytes:
    """Return how all lines of a run begin; empty if its keys are in another order."""
    head = line[: max(line.find(_FIRST_ACCURACY), 0)]
    return head if head.startswith(b'{"args": {') else b""


def _read_folder(
    folder: str,
    setting: SweepDescription,
    runs: list[LoggedRun],
    folds: list[swad.LoggedFold],
    problems: list[Problem],
) -> None:
    """Read the log of one folder, and add what it holds to the runs of DomainBed, or to the folds
    of SWAD's code.

    Raises:
        RecordError: the folder is no run.
        OSError: its file cannot be read, or is no regular file.
    """
    file = Path(folder, RESULTS)
    with open_regular(file) as handle:
        lines = handle.readlines()
    if any(
        b"real_test_envs" in line and swad.is_log(_or_nothing(line)) for line in lines[:_LOOKED_AT]
    ):
        folds += swad.read_folds(lines, file, problems)
        return
    logged = _read_run(folder, lines, problems, setting)
    if logged is not None:
        runs.append(logged)


def _or_nothing(line: bytes) -> Any:
    try:
        return decoded(line)
    except RecordError:
        return None


def _read_run(
    folder: str,
    lines: Sequence[bytes],
    problems: list[Problem],
    setting: SweepDescription,
    start: int | None = None,
) -> LoggedRun | None:
    """Read a run of DomainBed; None where it holds no record.

    Whatever is left out is added to ``problems``.

    Args:
        folder: where it stands.
        lines: of its log.
        problems: receives what is left out.
        setting: what the records do not say.
        start: number of the first line in a file of many runs; None of a folder of one.

    Raises:
        RecordError: the folder is no run.
    """
    file = Path(folder, RESULTS) if start is None else Path(folder.rpartition(":")[0])
    records, faults = _records(lines, start or 1)
    problems += [fault.in_file(file) for fault in bounded(faults)]
    if not records:
        problems.append(
            Problem("run without records", printable(folder), f"{RESULTS} holds no whole record")
        )
        return None
    args = records[0]["args"]
    keys = _accuracy_keys(records[0])
    held_out = tuple(sorted({*args["test_envs"], *(args.get("val_envs") or [])}))
    identity = _identity(records[0], held_out, len(keys) // 2, setting)
    # the later one wins: a run that was started again
    by_step = {record["step"]: record for record in records}
    if repeated := len(records) - len(by_step):
        reason = f"{repeated} steps were recorded twice; the later ones are used"
        problems.append(Problem("repeated records", printable(file), reason))
    steps = sorted(by_step)
    done = start is not None or os.path.exists(f"{folder}/done")
    status = "DONE" if done or not setting.require_done else "UNKNOWN"
    if not done:
        consequence = (
            "left out; import.require_done=false uses it"
            if setting.require_done
            else "used all the same"
        )
        problems.append(
            Problem(
                "no done marker",
                printable(folder),
                f"last record at step {steps[-1]}; {consequence}",
            )
        )
    accuracy = np.array([fractions(by_step[step], keys) for step in steps], dtype=np.float64)
    count = int(np.isfinite(accuracy).sum())
    run = Run(
        printable(folder), identity, status, "" if done else "no done marker", steps[-1], count
    )
    return LoggedRun(
        run, np.array(steps, dtype=np.int32), accuracy, np.isin(np.arange(len(keys)) // 2, held_out)
    )


def _records(lines: Sequence[bytes], start: int = 1) -> tuple[list[dict[str, Any]], list[Fault]]:
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
            final = bool(records) and f"{_SECOND}env0_in_acc" in record
            keys = keys if records else _accuracy_keys(record)
            expected = [_SECOND + key for key in keys[::2]] if final else keys
            _check_args(record, records, final)
            if not record.keys() >= {"step", *expected}:
                missing = [key for key in ("step", *expected) if key not in record]
                raise RecordError(f"lacks {', '.join(missing)}")
            if wrong := _STEP(record["step"]):
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
    if not wrong and (
        missing := [
            key for key in ("dataset", "algorithm", "test_envs") if key not in record["args"]
        ]
    ):
        wrong = f"lacks {', '.join(missing)} in args"
    if wrong := wrong or first_fault(record["args"], _ARGS_CHECKS):
        raise RecordError(wrong)
    keys: list[str] = []
    while f"env{len(keys) // 2}_out_acc" in record:
        keys += [f"env{len(keys) // 2}_in_acc", f"env{len(keys) // 2}_out_acc"]
    if not keys:
        raise RecordError("lacks env0_out_acc")
    if stray := [key for key in record if _ACCURACY.fullmatch(key) and key not in keys]:
        raise RecordError(f"has {stray[0]} and lacks env{len(keys) // 2}_out_acc")
    return keys


def _identity(
    record: dict[str, Any], held_out: tuple[int, ...], count: int, setting: SweepDescription
) -> dict[str, Any]:
    """Build the fields of :class:`dgbench.records.rows.RunIdentity`.

    Args:
        record: of the run, with ``args`` and ``hparams``.
        held_out: indices of the environments never trained on.
        count: of the environments.
        setting: what the record does not say.

    Raises:
        RecordError: names or held-out environments do not fit their count.
    """
    args = record["args"]
    draw, trial = int(args.get("hparams_seed", 0)), int(args.get("trial_seed", 0))
    protocol = {0: "loo", 1: "loo", 2: "pairs"}.get(len(held_out), "multi_test")
    return identity_of(
        setting,
        args,
        held_out,
        count,
        place=[args["dataset"], args["algorithm"], held_out, draw, trial],
        hparams=record.get("hparams") or {},
        draw=draw,
        trial=trial,
        protocol="multi_test" if args.get("val_envs") else protocol,
        code=f"{IMPORTED} from DomainBed",
    )

"""Logs of SWAD's code family: several folds in a ``results.jsonl``, no ``done`` marker.

MIRO, GGA, QT-DoG, PCL and others write them. A record names its fold in ``args.real_test_envs``.
``env{i}_out`` stands in it for every environment, ``env{i}_in`` for the held-out one, and for the
others where ``evalmode`` was ``all``. What these keys are for is as in DomainBed's records: papers
report ``in`` of the held-out environment, its ``out`` serves the oracle alone, and the mean of
``out`` over the others is training-domain validation. The log sums up the first and the last as
``test_in`` and ``train_out``, which are compared.

Weights that SWAD averages at the end are evaluated on the screen only: where ``hparams.swad`` is
set, the log is of the weights before averaging, and a problem says so.

Source: Cha et al. 2021, "SWAD: Domain Generalization by Seeking Flat Minima", and its published
trainer.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
from dgbench.reports.importers import IMPORTED
from dgbench.reports.importers.logs import (
    LoggedRun,
    SweepDescription,
    decoded,
    fraction,
    identity_of,
)
from dgbench.reports.reading.folders import Problem, printable
from dgbench.reports.reading.row_files import Fault, Run, bounded

ROUNDING = 1e-4  #: of an accuracy, where logs repeat it
_PART = re.compile(r"env(?P<env>\d{1,3})_(?P<part>in|out)(?:_(?P<metric>[a-z0-9]\w{0,30}))?")
_ARGS_CHECKS: dict[str, Check] = {
    "dataset": printable_text,
    "algorithm": printable_text,
    "real_test_envs": list_of(whole(0, 1000)),
    "seed": optional(whole()),
    "trial_seed": optional(whole()),
    "steps": optional(whole(0, LARGEST_COUNT)),
    "checkpoint_freq": optional(whole(0, LARGEST_COUNT)),
}
_STEP = whole(0, LARGEST_COUNT)

Record = Mapping[str, Any]


@dataclass(frozen=True)
class LoggedFold:
    """The records of one fold of one log."""

    file: Path
    held_out: tuple[int, ...]  #: indices of the environments that were never trained on
    environments: int  #: how many there are
    args: Mapping[str, Any]
    hparams: Mapping[str, Any]
    records: Mapping[int, Record]  #: by step

    @property
    def last_step(self) -> int:
        """The step of the last record."""
        return max(self.records)

    @property
    def schedule(self) -> tuple[Any, ...]:
        """What decides at which steps it is evaluated."""
        return self.args["dataset"], self.args.get("steps"), self.args.get("checkpoint_freq")

    @property
    def seeds(self) -> tuple[int, int]:
        """Seed of the training, and of the splits."""
        return int(self.args.get("seed") or 0), int(self.args.get("trial_seed") or 0)


def is_log(record: Any) -> bool:
    """Return whether a record is one of SWAD's code, not of DomainBed."""
    return (
        isinstance(record, dict)
        and isinstance(record.get("args"), dict)
        and "real_test_envs" in record["args"]
    )


def read_folds(lines: Sequence[bytes], file: Path, problems: list[Problem]) -> list[LoggedFold]:
    """Read the folds of one log; name the lines that are left out.

    Args:
        lines: of the file.
        file: its path.
        problems: receives what is left out.
    """
    faults: list[Fault] = []
    by_fold: dict[tuple[int, ...], list[Record]] = defaultdict(list)
    for number, line in enumerate(lines, start=1):
        try:
            record = decoded(line)
            fault = _fault(record)
        except RecordError as error:
            fault = str(error)
        if fault:
            faults.append(Fault("dropped line", number, fault))
            continue
        by_fold[tuple(sorted(record["args"]["real_test_envs"]))].append(record)
    problems += [fault.in_file(file) for fault in bounded(faults)]
    return [_fold(file, held_out, records, problems) for held_out, records in by_fold.items()]


def _fold(
    file: Path, held_out: tuple[int, ...], records: Sequence[Record], problems: list[Problem]
) -> LoggedFold:
    # the later one wins: a run that was started again
    by_step = {int(record["step"]): record for record in records}
    repeated = len(records) - len(by_step)
    if repeated:
        reason = (
            f"{repeated} steps of fold {_name(held_out)} were recorded twice; the later ones are "
            "used"
        )
        problems.append(Problem("repeated records", printable(file), reason))
    first = records[0]
    return LoggedFold(
        file,
        held_out,
        _environments(first),
        first["args"],
        _flat(first.get("hparams") or {}),
        by_step,
    )


def _fault(record: Record) -> str:
    """Say what is wrong with a record; empty where nothing is."""
    if not is_log(record):
        return "lacks args.real_test_envs, which the line before has"
    args = record["args"]
    missing = [key for key in ("dataset", "algorithm") if key not in args]
    if missing:
        return f"lacks {', '.join(missing)} in args"
    wrong = first_fault(args, _ARGS_CHECKS)
    if wrong:
        return wrong
    if not isinstance(record.get("hparams") or {}, dict):
        return "hparams is no mapping"
    wrong = first_fault({"hparams": _flat(record.get("hparams") or {})}, {"hparams": plain_mapping})
    if wrong:
        return wrong
    if "step" not in record:
        return "lacks step"
    wrong = _STEP(record["step"])
    if wrong:
        return f"step {wrong}"
    return _accuracy_fault(record)


def _accuracy_fault(record: Record) -> str:
    count = _environments(record)
    held_out = record["args"]["real_test_envs"]
    if not count:
        return "lacks env0_out"
    if not held_out or max(held_out) >= count:
        return f"real_test_envs is {shown(held_out)}, with {count} environments"
    needed = [f"env{index}_out" for index in range(count)] + [
        f"env{index}_in" for index in held_out
    ]
    for key in needed:
        value = _of(record, key)
        if np.isnan(fraction(value)):
            return (
                f"lacks {key}"
                if value is None
                else f"{key} is {shown(value)}, no fraction in [0, 1]"
            )
    trained = [index for index in range(count) if index not in held_out]
    for total, part, indices in (("test_in", "in", held_out), ("train_out", "out", trained)):
        said = fraction(record.get(total))
        mean = (
            float(np.mean([_of(record, f"env{index}_{part}") for index in indices]))
            if indices
            else said
        )
        if abs(said - mean) > ROUNDING:
            return f"{total} is {said:g}, and the mean of the environments that it sums up {mean:g}"
    return ""


def _of(record: Record, key: str) -> Any:
    """Look up an accuracy, which some of these codes write as ``env0_in`` and some as
    ``env0_in_acc``.
    """
    return record.get(key, record.get(f"{key}_acc"))


def _environments(record: Record) -> int:
    """Count ``env0_out``, ``env1_out``, ..., as far as they are consecutive."""
    count = 0
    while _of(record, f"env{count}_out") is not None:
        count += 1
    return count


def _flat(hparams: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested hyperparameters: ``{"swad_kwargs": {"n_converge": 3}}`` becomes
    ``swad_kwargs.n_converge``.
    """
    flat: dict[str, Any] = {}
    for key, value in hparams.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _name(held_out: Sequence[int]) -> str:
    return "-".join(map(str, held_out))


def runs_of(
    folds: Sequence[LoggedFold], setting: SweepDescription, problems: list[Problem]
) -> list[LoggedRun]:
    """Make runs of all folds of a sweep.

    Args:
        folds: of all its logs.
        setting: what the records do not say.
        problems: receives what had to be assumed, and what is left out.

    Raises:
        RecordError: one algorithm has several sets of hyperparameters, or the environments' names
            do not fit.
    """
    _refuse_variants(folds)
    longest: dict[tuple[Any, ...], int] = {}
    for fold in folds:
        longest[fold.schedule] = max(fold.last_step, longest.get(fold.schedule, 0))
    seeds = _seeds(folds, problems)
    _note_assumptions(folds, problems)
    runs = []
    for fold in folds:
        unfinished = _unfinished(fold, longest[fold.schedule])
        if unfinished:
            consequence = (
                "left out; import.require_done=false uses it"
                if setting.require_done
                else "used all the same"
            )
            place = f"{printable(fold.file)}, fold {_name(fold.held_out)}"
            problems.append(
                Problem("not trained to the end", place, f"{unfinished}; {consequence}")
            )
        runs.append(_run(fold, seeds[fold.seeds], unfinished, setting))
    return runs


def _unfinished(fold: LoggedFold, longest: int) -> str:
    """Say why a fold is not trained to the end; empty where it is."""
    last = fold.last_step
    if last < longest:
        return f"its last record is of step {last}, others of the same schedule go to {longest}"
    steps, every = fold.args.get("steps"), fold.args.get("checkpoint_freq")
    if steps and every and last + every < steps:
        return f"its last record is of step {last}, of {steps}"
    return ""


def _note_assumptions(folds: Sequence[LoggedFold], problems: list[Problem]) -> None:
    """Say what the log does not: how long it should be, and the weights that SWAD averages."""
    for files, kind, reason in (
        (
            {fold.file for fold in folds if not fold.args.get("steps")},
            "assumed",
            "args.steps is not given: the longest runs of a dataset are taken as whole",
        ),
        (
            {fold.file for fold in folds if fold.hparams.get("swad")},
            "not averaged",
            (
                "hparams.swad is set, and the log has the accuracies before averaging alone; SWAD "
                "prints those after it"
            ),
        ),
    ):
        if files:
            first = printable(min(files))
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            problems.append(Problem(kind, f"{first}{more}", reason))


def _seeds(folds: Sequence[LoggedFold], problems: list[Problem]) -> dict[tuple[int, int], int]:
    """Choose one seed for each pair of ``seed`` and ``trial_seed``: the one of them that varies."""
    pairs = sorted({fold.seeds for fold in folds})
    trainings = {pair[0] for pair in pairs}
    splits = {pair[1] for pair in pairs}
    if len(trainings) == len(pairs):
        return {pair: pair[0] for pair in pairs}
    if len(splits) == len(pairs):
        return {pair: pair[1] for pair in pairs}
    reason = (
        f"seed and trial_seed both vary; each of the {len(pairs)} pairs counts as one seed, "
        "numbered from 0"
    )
    problems.append(Problem("assumed", printable(folds[0].file), reason))
    return {pair: number for number, pair in enumerate(pairs)}


def _refuse_variants(folds: Sequence[LoggedFold]) -> None:
    """Refuse one algorithm with several sets of hyperparameters, which a table would take for
    repetitions.

    Raises:
        RecordError: it names the keys that differ.
    """
    variants: dict[tuple[str, str], dict[str, LoggedFold]] = defaultdict(dict)
    for fold in folds:
        text = json.dumps(fold.hparams, sort_keys=True)
        variants[fold.args["dataset"], fold.args["algorithm"]].setdefault(text, fold)
    for (dataset, algorithm), sets in variants.items():
        if len(sets) == 1:
            continue
        first, second = list(sets.values())[:2]
        keys = sorted({*first.hparams, *second.hparams})
        differing = [key for key in keys if first.hparams.get(key) != second.hparams.get(key)]
        raise RecordError(
            f"{algorithm} on {dataset} has {len(sets)} sets of hyperparameters, which differ in "
            f"{', '.join(differing)} ({printable(first.file)} and {printable(second.file)}); give "
            "import.path a folder of one set"
        )


def _run(fold: LoggedFold, seed: int, unfinished: str, setting: SweepDescription) -> LoggedRun:
    args = fold.args
    identity = identity_of(
        setting,
        args,
        fold.held_out,
        fold.environments,
        place=["swad", args["dataset"], args["algorithm"], fold.held_out, *fold.seeds],
        hparams=fold.hparams,
        draw=0,
        trial=seed,
        protocol={1: "loo", 2: "pairs"}.get(len(fold.held_out), "multi_test"),
        code=f"{IMPORTED} from a log of SWAD's code",
    )
    steps = sorted(fold.records)
    parts: list[str] = []
    for index in range(fold.environments):
        parts += [f"env{index}_in", f"env{index}_out"]
    accuracy = []
    for step in steps:
        accuracy.append([fraction(_of(fold.records[step], part)) for part in parts])
    status = "UNKNOWN" if unfinished and setting.require_done else "DONE"
    folder = f"{printable(fold.file.parent)}, fold {_name(fold.held_out)}"
    values = np.array(accuracy, dtype=np.float64)
    run = Run(folder, identity, status, unfinished, steps[-1], int(np.isfinite(values).sum()))
    held_out = np.isin(np.arange(len(parts)) // 2, fold.held_out)
    return LoggedRun(
        run, np.array(steps, dtype=np.int32), values, held_out, _other_metrics(fold, steps, parts)
    )


def _other_metrics(fold: LoggedFold, steps: Sequence[int], parts: Sequence[str]) -> dict[str, Any]:
    """Collect what was logged of each environment beside the accuracy, such as ``env0_in_auc``."""
    matches = [_PART.fullmatch(key) for key in fold.records[steps[0]]]
    metrics = sorted(
        {match["metric"] for match in matches if match and match["metric"] not in (None, "acc")}
    )
    values = {}
    for metric in metrics:
        names = [f"{part}_{metric}" for part in parts]
        lines = []
        for step in steps:
            record = fold.records[step]
            lines.append([_number(record.get(name)) for name in names])
        values[metric] = np.array(lines, dtype=np.float64)
    return values


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) else float("nan")

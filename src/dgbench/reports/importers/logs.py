"""What importers of training logs share: runs as their records tell it, duplicates, rows."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.errors import RecordError
from dgbench.plan.domainbed_names import DATASETS
from dgbench.plan.names import our_name
from dgbench.records.run_identity import DEFAULTS
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import Names, Run

RESULTS = "results.jsonl"
SUBSETS = ("train", "val", "test")
_TRAIN, _VAL, _TEST = range(3)


@dataclass(frozen=True)
class SweepDescription:
    """What the records of a sweep do not say."""

    backbone: str
    init: str
    environments: Sequence[str] | None
    require_done: bool
    #: one copy of each list and mapping that identities of tens of thousands of runs have in common
    values: Names = field(default_factory=Names, compare=False)


@dataclass(frozen=True)
class LoggedRun:
    """A run and what it logged of each environment: its ``in`` part, then its ``out`` part."""

    run: Run
    steps: NDArray[np.int32]
    accuracy: NDArray[np.float64]  #: [record, part]; NaN where there is none
    held_out: NDArray[np.bool_]  #: of each part, whether its environment was never trained on
    #: name of another metric -> its values, as ``accuracy``
    others: dict[str, NDArray[np.float64]] = field(default_factory=dict)


def without_duplicates(runs: Sequence[LoggedRun], problems: list[Problem]) -> list[LoggedRun]:
    """Choose one log per run: a finished one, then the longest, then the first by name.

    The others are named among the problems.
    """
    groups: dict[str, list[LoggedRun]] = defaultdict(list)
    for logged in runs:
        groups[logged.run.identity["run"]].append(logged)
    unique = []
    for group in groups.values():
        best, *duplicates = sorted(
            group, key=lambda log: (log.run.status != "DONE", -log.run.last_step, log.run.folder)
        )
        unique.append(best)
        reason = f"same run as {best.run.folder}, which is used"
        problems += [Problem("duplicate", duplicate.run.folder, reason) for duplicate in duplicates]
    return unique


def rows_of(runs: Sequence[LoggedRun]) -> pd.DataFrame:
    """Make the table of :class:`~dgbench.reports.reading.collect.Collection`.

    Returns:
        its columns, the ``accuracy`` as read, and a column for each other metric, NaN where a run
        has none.
    """
    names = list(dict.fromkeys(name for logged in runs for name in logged.run.identity["given"]))
    code_of = {name: code for code, name in enumerate(names)}
    heights = [len(logged.steps) * len(logged.held_out) for logged in runs]
    envs = []
    for logged in runs:
        codes = np.array([code_of[name] for name in logged.run.identity["given"]], dtype=np.int16)
        envs.append(np.tile(np.repeat(codes, 2), len(logged.steps)))
    unseen = np.concatenate([np.tile(logged.held_out, len(logged.steps)) for logged in runs])
    # of every environment, what is large comes first, then what validates
    is_out = np.concatenate([np.arange(height) % 2 == 1 for height in heights])
    subset = np.where(is_out, _VAL, np.where(unseen, _TEST, _TRAIN)).astype(np.int8)
    accuracy = np.concatenate([logged.accuracy.ravel() for logged in runs])
    steps = [np.repeat(logged.steps, len(logged.held_out)) for logged in runs]
    columns = {
        "env": pd.Categorical.from_codes(np.concatenate(envs), pd.Index(names)),
        "subset": pd.Categorical.from_codes(subset, pd.Index(SUBSETS)),
        "env_held_out": unseen,
        "run": np.repeat(np.arange(len(runs), dtype=np.int32), heights),
        "step": np.concatenate(steps),
        "accuracy": accuracy,
        **_other_metrics(runs, heights),
        "seen": np.ones(len(accuracy), dtype=np.int32),
        "wrong": 1 - accuracy,
        "loss": np.full(len(accuracy), np.nan, dtype=np.float32),
    }
    used = ~np.isnan(accuracy) | (subset == _VAL)
    frame = pd.DataFrame(columns, copy=False)
    return frame if used.all() else frame[used].reset_index(drop=True)


def _other_metrics(
    runs: Sequence[LoggedRun], heights: Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    """Collect each other metric of any run, NaN where a run has none."""
    names = dict.fromkeys(name for logged in runs for name in logged.others)
    columns = {}
    for name in names:
        parts = []
        for logged, height in zip(runs, heights, strict=True):
            values = logged.others.get(name)
            parts.append(np.full(height, np.nan) if values is None else values.ravel())
        columns[name] = np.concatenate(parts)
    return columns


def decoded(line: bytes) -> dict[str, Any]:
    """Parse a line as one JSON object.

    Raises:
        RecordError: it is none.
    """
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        record = None
    if type(record) is not dict:
        raise RecordError("not a whole JSON object (half-written?)")
    return record


def fraction(value: Any) -> float:
    """Return an accuracy in [0, 1]; NaN for anything else."""
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else float("nan")


def fractions(record: Mapping[str, Any], keys: Sequence[str]) -> Sequence[float]:
    """List the accuracies of a record; NaN for what is no fraction in [0, 1]."""
    values = [record[key] for key in keys]
    # a sweep has tens of millions: the usual ones are checked together
    numbers = set(map(type, values)) <= {int, float}
    if numbers and min(values) >= 0 and max(values) <= 1 and sum(values) == sum(values):
        return values
    return [fraction(value) for value in values]


def dataset_and_environments(
    name: str, count: int, held_out: Sequence[int], setting: SweepDescription
) -> tuple[str, list[str]]:
    """Look up our name of a dataset of DomainBed's, and the names of its environments.

    Args:
        name: of the dataset, in the records.
        count: of its environments, there.
        held_out: indices of the environments that were never trained on.
        setting: names the environments, if the user did.

    Raises:
        RecordError: names or held-out environments do not fit their count.
    """
    dataset, known = DATASETS.get(name, (name, ()))
    given = list(known) if len(known) == count else [f"env{index}" for index in range(count)]
    if setting.environments:
        given = list(map(str, setting.environments))
    if len(given) != count or any(index >= count for index in held_out):
        raise RecordError(
            f"{name} has {count} environments, held out {list(held_out)}, named {given}; "
            "give import.environments as many names, or leave it out"
        )
    return dataset, given


def identity_of(
    setting: SweepDescription,
    args: Mapping[str, Any],
    held_out: Sequence[int],
    count: int,
    *,
    place: Sequence[Any],
    hparams: Mapping[str, Any],
    draw: int,
    trial: int,
    protocol: str,
    code: str,
) -> dict[str, Any]:
    """Build the fields of :class:`dgbench.records.run_identity.RunIdentity`.

    Args:
        setting: what the records do not say.
        args: of the records: ``dataset`` and ``algorithm``.
        held_out: indices of the environments never trained on.
        count: of the environments.
        place: what tells the run from others; its hash is made of it.
        hparams: hyperparameters.
        draw: of the hyperparameters.
        trial: the seed.
        protocol: of the fold.
        code: that trained it.

    Raises:
        RecordError: names or held-out environments do not fit their count.
    """
    dataset, given = dataset_and_environments(args["dataset"], count, held_out, setting)
    shared = setting.values.shared
    return {
        **DEFAULTS,
        "run": hashlib.sha256(json.dumps(place).encode()).hexdigest()[:12],
        "dataset": dataset,
        "variant": shared({}),
        "base": "domainbed",
        "evaluation": "sampled",
        "data_seed": 0,
        "split_seed": 0,
        "given": shared(given),
        "algorithm": our_name(args["algorithm"]),
        "hparams": shared(dict(hparams)),
        "draw": draw,
        "space": "domainbed",
        "trial": trial,
        "backbone": setting.backbone,
        "init": setting.init,
        "protocol": protocol,
        "fold": "-".join(map(str, held_out)) or "full",
        "held_out": shared([given[index] for index in held_out]),
        "seed": trial,
        "code": code,
    }

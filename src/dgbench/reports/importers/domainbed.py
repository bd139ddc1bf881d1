"""DomainBed's sweeps: folders with ``results.jsonl``, one JSON object a line, and a ``done`` marker.

DomainBed splits every environment i into a large ``in`` and a small ``out`` part and records the accuracy on both. What
they are for depends on whether the run trained on i, and that is how they become our subsets:

===============  ===================================  ==========================================
record key       i was trained on                     i was held out
===============  ===================================  ==========================================
env{i}_in_acc    ``train``                            ``test``: the accuracy that tables report
env{i}_out_acc   ``val``: training-domain validation  ``val``: what the oracle looks at
===============  ===================================  ==========================================

Records do not say how many images were seen, so ``seen`` is 1 and ``wrong`` the error; the accuracy as read stands in a
column of its own. The trial is the seed: it decides DomainBed's splits, too. There is no model of all environments.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.errors import RecordError
from dgbench.reports.collect import Collection, Run
from dgbench.reports.folders import Problem
from dgbench.reports.importers import IMPORTED
from dgbench.reports.importers.domainbed_names import ALGORITHMS, DATASETS, environment_names

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

RESULTS = "results.jsonl"
SUBSETS = ("train", "val", "test")


@dataclass(frozen=True)
class _Sweep:
    """What one folder holds: a run and its accuracies."""

    run: Run
    steps: NDArray[np.int32]
    accuracy: NDArray[np.float64]  #: [record, in and out of each environment]
    held_out: tuple[int, ...]  #: indices of the environments never trained on


def read_domainbed(
    path: str | Path,
    require_done: bool = True,
    backbone: str = "domainbed",
    init: str = "domainbed",
    environments: Sequence[str] | None = None,
) -> Collection:
    """Read every ``results.jsonl`` under a folder.

    Args:
        path: folder of the sweep.
        require_done: leave out runs without a ``done`` marker; DomainBed's own collector takes them.
        backbone: what tables call the network; DomainBed chooses it by dataset and does not record it.
        init: what tables call the initial weights.
        environments: names of the environments, in order; by default those of the known datasets, else env0, env1, ...

    Raises:
        RecordError: there is no run.
    """
    places = _result_files(Path(path))
    if not places:
        raise RecordError(f"no {RESULTS} under {path}; name the folder of a DomainBed sweep with import.path=DIR")
    problems: list[Problem] = []
    sweeps = []
    for folder in places:
        if sweep := _read(folder, problems, require_done, (backbone, init), environments):
            sweeps.append(sweep)
    if not sweeps:
        raise RecordError(
            f"none of the {len(places)} files {RESULTS} under {path} holds a record; see that they are whole"
        )
    sweeps = _without_duplicates(sweeps, problems)
    return Collection([sweep.run for sweep in sweeps], _rows(sweeps), problems, [])


def _result_files(root: Path) -> list[str]:
    return sorted(folder for folder, _, files in os.walk(root) if RESULTS in files)


def _read(
    folder: str, problems: list[Problem], require_done: bool, setting: tuple[str, str], names: Sequence[str] | None
) -> _Sweep | None:
    file = f"{folder}/{RESULTS}"
    first: dict[str, Any] = {}
    keys: list[str] = []
    found: dict[int, list[float]] = {}
    repeated = 0
    try:
        with open(file, "rb") as handle:
            lines = handle.readlines()
    except OSError as error:
        problems.append(Problem("unreadable file", file, f"{error.strerror}; make it readable"))
        return None
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if not first:
                first, keys = record, _accuracy_keys(record)
            elif record["args"] != first["args"]:
                problems.append(Problem("dropped line", f"{file}:{number}", "other args than the lines before"))
                continue
            step = int(record["step"])
            values = [float(record[key]) for key in keys]
        except (ValueError, TypeError, KeyError) as error:
            lacks = f"lacks {error}" if isinstance(error, KeyError) else "not a whole JSON object (half-written?)"
            problems.append(Problem("dropped line", f"{file}:{number}", lacks))
            continue
        repeated += step in found
        found[step] = values  # the later line wins: a run that was started again
    if not found:
        problems.append(Problem("run without records", folder, f"{RESULTS} holds no whole record"))
        return None
    if repeated:
        problems.append(
            Problem("repeated records", file, f"{repeated} steps were recorded twice; the later ones are used")
        )
    done = os.path.exists(f"{folder}/done")
    status = "DONE" if done or not require_done else "UNKNOWN"
    if not done:
        what = "left out; import.require_done=false uses it" if require_done else "used all the same"
        problems.append(Problem("no done marker", folder, f"last record at step {max(found)}; {what}"))
    args = first["args"]
    held_out = tuple(sorted({*args["test_envs"], *(args.get("val_envs") or [])}))
    identity = _identity(first, held_out, len(keys) // 2, setting, names)
    run = Run(folder, identity, status, "" if done else "no done marker", max(found), len(found) * len(keys))
    steps = sorted(found)
    accuracy = np.array([found[step] for step in steps], dtype=np.float64)
    return _Sweep(run, np.array(steps, dtype=np.int32), accuracy, held_out)


def _accuracy_keys(record: dict[str, Any]) -> list[str]:
    """``env0_in_acc``, ``env0_out_acc``, ``env1_in_acc``, ... as far as they are consecutive."""
    for key in ("dataset", "algorithm", "test_envs"):
        record["args"][key]
    keys: list[str] = []
    while f"env{len(keys) // 2}_out_acc" in record:
        keys += [f"env{len(keys) // 2}_in_acc", f"env{len(keys) // 2}_out_acc"]
    if not keys:
        raise KeyError("env0_out_acc")
    return keys


def _identity(
    record: dict[str, Any],
    held_out: tuple[int, ...],
    count: int,
    setting: tuple[str, str],
    names: Sequence[str] | None,
) -> dict[str, Any]:
    args = record["args"]
    given = list(names) if names else environment_names(args["dataset"], count)
    if len(given) != count or any(index >= count for index in held_out):
        raise RecordError(
            f"{args['dataset']} has {count} environments, held out {list(held_out)}, named {given}; "
            "give import.environments as many names, or leave it out"
        )
    place = [args["dataset"], args["algorithm"], held_out, args.get("hparams_seed", 0), args.get("trial_seed", 0)]
    protocol = {0: "loo", 1: "loo", 2: "pairs"}.get(len(held_out), "multi_test")
    return {
        "run": hashlib.sha256(json.dumps(place).encode()).hexdigest()[:12],
        "dataset": DATASETS.get(args["dataset"], args["dataset"]),
        "variant": {},
        "base": "domainbed",
        "evaluation": "sampled",
        "data_seed": 0,
        "split_seed": 0,
        "given": given,
        "algorithm": ALGORITHMS.get(args["algorithm"], args["algorithm"]),
        "hparams": record.get("hparams") or {},
        "draw": int(args.get("hparams_seed", 0)),
        "backbone": setting[0],
        "init": setting[1],
        "tuning": "ft",
        "protocol": "multi_test" if args.get("val_envs") else protocol,
        "fold": "-".join(map(str, held_out)) or "full",
        "held_out": [given[index] for index in held_out],
        "seed": int(args.get("trial_seed", 0)),
        "averaging": "none",
        "code": f"{IMPORTED} from DomainBed",
    }


def _without_duplicates(sweeps: list[_Sweep], problems: list[Problem]) -> list[_Sweep]:
    """One folder per run: a finished one, then the longest, then the first by name."""
    groups: dict[str, list[_Sweep]] = defaultdict(list)
    for sweep in sweeps:
        groups[sweep.run.identity["run"]].append(sweep)
    kept = []
    for group in groups.values():
        group.sort(key=lambda sweep: (sweep.run.status != "DONE", -sweep.run.last_step, sweep.run.folder))
        kept.append(group[0])
        problems += [
            Problem("duplicate", other.run.folder, f"same run as {group[0].run.folder}, which is used")
            for other in group[1:]
        ]
    return kept


def _rows(sweeps: Sequence[_Sweep]) -> pd.DataFrame:
    """The table of :class:`~dgbench.reports.collect.Collection`, with the accuracy as read."""
    import pandas as pd

    places: dict[str, int] = {}
    env, subset, held_out = [], [], []
    patterns: dict[tuple[Any, ...], tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = {}
    for sweep in sweeps:
        given = sweep.run.identity["given"]
        key = (*given, sweep.held_out)
        if key not in patterns:
            unseen = [index in sweep.held_out for index in range(len(given)) for _ in range(2)]
            codes = [places.setdefault(sys.intern(str(name)), len(places)) for name in given for _ in range(2)]
            kinds = [1 if i % 2 else 2 if out else 0 for i, out in enumerate(unseen)]
            patterns[key] = np.array(codes, dtype="int16"), np.array(kinds, dtype="int8"), np.array(unseen, dtype=bool)
        for target, part in zip((env, subset, held_out), patterns[key], strict=True):
            target.append(np.tile(part, len(sweep.steps)))
    accuracy = np.concatenate([sweep.accuracy.ravel() for sweep in sweeps])
    lengths = [sweep.accuracy.size for sweep in sweeps]
    return pd.DataFrame(
        {
            "run": np.repeat(np.arange(len(sweeps), dtype="int32"), lengths),
            "step": np.concatenate([np.repeat(sweep.steps, sweep.accuracy.shape[1]) for sweep in sweeps]),
            "env": pd.Categorical.from_codes(np.concatenate(env), list(places)),
            "subset": pd.Categorical.from_codes(np.concatenate(subset), list(SUBSETS)),
            "env_held_out": np.concatenate(held_out),
            "seen": np.ones(len(accuracy), dtype="int32"),
            "wrong": 1 - accuracy,
            "loss": np.full(len(accuracy), np.nan, dtype="float32"),
            "accuracy": accuracy,
        }
    )

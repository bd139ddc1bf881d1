"""One folder of a DomainBed sweep: its records, its ``done`` marker, and who wrote them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.errors import RecordError
from dgbench.reports.folders import Problem
from dgbench.reports.importers import IMPORTED
from dgbench.reports.importers.domainbed_names import ALGORITHMS, DATASETS, environment_names
from dgbench.reports.run import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESULTS = "results.jsonl"


@dataclass(frozen=True)
class Sweep:
    """What one folder holds: a run and its accuracies."""

    run: Run
    steps: NDArray[np.int32]
    accuracy: NDArray[np.float64]  #: [record, in and out of each environment]
    held_out: tuple[int, ...]  #: indices of the environments never trained on


def read_sweep(
    folder: str, problems: list[Problem], require_done: bool, setting: tuple[str, str], names: Sequence[str] | None
) -> Sweep | None:
    """The run of one folder; None where it holds no record. Whatever is left out is added to ``problems``."""
    file = f"{folder}/{RESULTS}"
    first: dict[str, Any] = {}
    constant: list[bytes] = []
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
            for text in constant:
                line = line.replace(text, b"null", 1)
            record = json.loads(line)
            if not first:
                first, keys, constant = record, _accuracy_keys(record), _constant(line, ("args", "hparams"))
            elif record["args"] not in (None, first["args"]):
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
    return Sweep(run, np.array(steps, dtype=np.int32), accuracy, held_out)


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
        "space": "domainbed",
        "trial": int(args.get("trial_seed", 0)),
        "backbone": setting[0],
        "init": setting[1],
        "tuning": "ft",
        "protocol": "multi_test" if args.get("val_envs") else protocol,
        "fold": "-".join(map(str, held_out)) or "full",
        "held_out": [given[index] for index in held_out],
        "folds": None,
        "seed": int(args.get("trial_seed", 0)),
        "averaging": "none",
        "code": f"{IMPORTED} from DomainBed",
    }

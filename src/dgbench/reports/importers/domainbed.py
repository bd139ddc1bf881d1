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
column of its own. One that is no fraction in [0, 1] is named and left out; for validation it counts as NaN, which loses
to every accuracy, as in DomainBed. The trial is the seed: it decides DomainBed's splits, too. There is no model of all
environments.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.errors import RecordError
from dgbench.reports.importers.domainbed_run import RESULTS, Sweep, read_sweep
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import UNREADABLE_FOLDER, Problem, printable

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SUBSETS = ("train", "val", "test")


def read_domainbed(
    path: str | Path | None,
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
        RecordError: there is no folder, or no run in it.
    """
    if path is None:
        raise RecordError("no folder to import; name that of a DomainBed sweep with import.path=DIR")
    problems: list[Problem] = []
    folders = _with_results(Path(path), problems) if os.path.isdir(path) else []
    if not folders:
        told = f" ({problems[0].kind} {problems[0].where}: {problems[0].reason})" if problems else ""
        raise RecordError(f"no {RESULTS} under {path}{told}; name the folder of a DomainBed sweep with import.path=DIR")
    sweeps = []
    for folder in folders:
        try:
            if sweep := read_sweep(folder, problems, require_done, (backbone, init), environments):
                sweeps.append(sweep)
        except (RecordError, OSError) as error:
            why = str(error) if isinstance(error, RecordError) else f"{RESULTS}: {error.strerror}; make it readable"
            problems.append(Problem("folder left out", printable(folder), why))
    if not sweeps:
        raise RecordError(
            f"none of the {len(folders)} files {RESULTS} under {path} holds a run ({problems[-1].where}: "
            f"{problems[-1].reason}); see that they are whole"
        )
    sweeps = _without_duplicates(sweeps, problems)
    return Collection([sweep.run for sweep in sweeps], _rows(sweeps), problems, [])


def _with_results(root: Path, problems: list[Problem]) -> list[str]:
    """Folders that have something called results; those that cannot be searched are problems."""

    def unreadable(error: OSError) -> None:
        where = printable(error.filename or root)
        problems.append(Problem(UNREADABLE_FOLDER, where, f"{error.strerror}; make it readable"))

    return sorted(folder for folder, *inside in os.walk(root, onerror=unreadable) if any(RESULTS in i for i in inside))


def _without_duplicates(sweeps: list[Sweep], problems: list[Problem]) -> list[Sweep]:
    """One folder per run: a finished one, then the longest, then the first by name."""
    groups: dict[str, list[Sweep]] = defaultdict(list)
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


def _rows(sweeps: Sequence[Sweep]) -> pd.DataFrame:
    """The table of :class:`~dgbench.reports.reading.collect.Collection`, with the accuracy as read."""
    import pandas as pd

    places: dict[str, int] = {}
    env: list[NDArray[Any]] = []
    subset: list[NDArray[Any]] = []
    held_out: list[NDArray[Any]] = []
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
    frame = pd.DataFrame(
        {
            "run": np.repeat(np.arange(len(sweeps), dtype="int32"), lengths),
            "step": np.concatenate([np.repeat(sweep.steps, sweep.accuracy.shape[1]) for sweep in sweeps]),
            "env": _categories(np.concatenate(env), list(places)),
            "subset": _categories(np.concatenate(subset), list(SUBSETS)),
            "env_held_out": np.concatenate(held_out),
            "seen": np.ones(len(accuracy), dtype="int32"),
            "wrong": 1 - accuracy,
            "loss": np.full(len(accuracy), np.nan, dtype="float32"),
            "accuracy": accuracy,
        }
    )
    used = np.isfinite(accuracy) | (np.concatenate(subset) == SUBSETS.index("val"))
    return frame if used.all() else frame[used].reset_index(drop=True)


def _categories(codes: NDArray[Any], names: list[str]) -> pd.Categorical[str]:
    import pandas as pd

    return pd.Categorical.from_codes(codes, pd.Index(names))

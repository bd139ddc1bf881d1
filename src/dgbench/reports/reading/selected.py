"""Applies a selection to everything that was collected: the step of each run, and the draw of each search.

Runs at their selected steps, from a collection or a frame of :func:`dgbench.results`: what tables are made of.

Models that dgbench did not train stand in every table of the environments that they were evaluated in.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dgbench.analysis.columns import Records, RunKey
from dgbench.analysis.selection import Draws, Rows, Selection, choose_draws
from dgbench.protocols.folds import FULL
from dgbench.records.rows import EVALUATED, Role, identity_key, keys
from dgbench.reports.labels import algorithm_labels
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import fold_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Selected:
    """What a selection made of a collection. Runs are named by their position in ``collection.runs``."""

    labels: list[str]  #: algorithm of each run, as tables name it
    why: dict[int, str]  #: run -> why it does not count
    lost: frozenset[int]  #: those of them that only lost to another draw of their search
    steps: list[int]  #: chosen step of each run, -1 where there is none
    accuracy: list[float]  #: validation accuracy that speaks for it, NaN where there is none
    rows: dict[int, list[dict[str, Any]]]  #: run that counts -> its ``test`` rows at the chosen step


def select_runs(collection: Collection, selection: Selection, split_by: str | None = None) -> Selected:
    """Choose a step of every finished run and a draw of every search.

    Args:
        collection: what was collected.
        selection: the method.
        split_by: one more identity key whose values are kept apart.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    names = keys(Role.DATA | Role.NETWORK, split_by)  # of runs that judge one another, or are draws of one search
    for index, run in enumerate(collection.runs):
        groups[identity_key(run.identity, names)].append(index)
    labels = [""] * len(collection.runs)
    run_keys: list[RunKey] = [RunKey("")] * len(collection.runs)
    for group, indices in groups.items():
        identities = [collection.runs[index].identity for index in indices]
        named = algorithm_labels(identities, searches=selection.chooses_draws)
        for index, label, identity in zip(indices, named, identities, strict=True):
            labels[index] = label
            run_keys[index] = RunKey(
                (group, label),
                tuple(identity["given"]),
                frozenset(identity["held_out"]),
                identity["seed"],
                identity["draw"],
                identity["protocol"],
            )
    table = finished_rows(collection)
    records = records_of(table, run_keys)
    choices = selection.choose(records)
    for index, run in enumerate(collection.runs):
        if run.unusable:
            choices.why[index] = run.unusable
            choices.steps[index] = -1
    draws = choose_draws(run_keys, choices, selection) if selection.chooses_draws else Draws()
    why = {**choices.why, **draws.stuck, **draws.lost}
    counts = np.ones(len(run_keys), dtype=bool)
    counts[list(why)] = False
    rows = test_rows(records, table, choices.steps, counts)
    steps, accuracy = choices.steps.tolist(), choices.accuracy.tolist()
    return Selected(labels, why, frozenset(draws.lost), steps, accuracy, rows)


def finished_rows(collection: Collection) -> pd.DataFrame:
    """The rows of the finished runs."""
    usable = np.array([not run.unusable for run in collection.runs], dtype=bool)
    return collection.rows if usable.all() else collection.rows[usable[collection.rows["run"].to_numpy()]]


def records_of(table: pd.DataFrame, run_keys: Sequence[RunKey]) -> Records:
    """The columns of a collection's rows, as a selection takes them."""
    return Records(
        run_keys,
        [str(name) for name in table["env"].cat.categories],
        [str(name) for name in table["subset"].cat.categories],
        table["run"].to_numpy(),
        table["step"].to_numpy(),
        table["env"].cat.codes.to_numpy(),
        table["subset"].cat.codes.to_numpy(),
        table["env_held_out"].to_numpy(),
        accuracies(table),
        table["seen"].to_numpy(),
    )


def accuracies(rows: pd.DataFrame) -> NDArray[np.floating[Any]]:
    """Fraction right of each row: as an importer read it where it did, or counted."""
    if "accuracy" in rows:
        return np.asarray(rows["accuracy"].to_numpy(), dtype=np.float64)
    return np.asarray(1 - rows["wrong"].to_numpy() / rows["seen"].to_numpy(), dtype=np.float64)


def test_rows(
    records: Records, table: pd.DataFrame, steps: Any, counts: NDArray[np.bool_]
) -> dict[int, list[dict[str, Any]]]:
    """The ``test`` rows of each run that counts, at its step.

    Args:
        records: columns of ``table``.
        table: the rows.
        steps: step of each run.
        counts: which runs count.
    """
    chosen = counts[records.run] & (records.step == steps[records.run]) & records.of_subset("test")
    where = np.flatnonzero(chosen)
    found: dict[int, list[dict[str, Any]]] = {int(run): [] for run in np.flatnonzero(counts)}
    for index, step, env, held_out, accuracy, seen, wrong in zip(
        records.run[where].tolist(),
        records.step[where].tolist(),
        records.env[where].tolist(),
        records.held_out[where].tolist(),
        records.accuracy[where].tolist(),
        records.seen[where].tolist(),
        table["wrong"].to_numpy()[where].tolist(),
        strict=True,
    ):
        found[index].append(
            {
                "step": step,
                "env": records.environments[env],
                "subset": "test",
                "env_held_out": held_out,
                "seen": seen,
                "wrong": wrong,
                "accuracy": accuracy,
            }
        )
    return found


#: what a row must say for tables
_NEEDED = ("step", "env", "subset", "env_held_out", "seen", "wrong")


@dataclass(frozen=True)
class SelectedRun:
    """One run, and its ``test`` rows at the step that a selection chose."""

    identity: Mapping[str, Any]  #: the fields of :class:`~dgbench.records.rows.RunIdentity`
    label: str  #: the algorithm as tables name it
    folder: str
    rows: Rows = ()
    why: str = ""  #: why it does not count; empty where it does
    lost: bool = False  #: it does not count because another draw of its search was chosen
    finished: bool = True  #: it was trained to its end
    environments: frozenset[str] = frozenset()  #: in which it has ``test`` rows, at any step; of ``full`` folds alone


@dataclass(frozen=True)
class SelectedRuns:
    """All runs of a report."""

    runs: Sequence[SelectedRun]
    silent: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)  #: study folder -> fold without rows -> why
    partial: bool = False  #: runs that do not count may not be among them


def of_collection(collection: Collection, selected: Selected) -> SelectedRuns:
    """The runs of a collection, those that do not count included."""
    named = zip(collection.runs, selected.labels, strict=True)
    everywhere = _environments_of_full(collection)
    runs = [
        SelectedRun(
            run.identity,
            label,
            run.folder,
            selected.rows.get(at, ()),
            selected.why.get(at, ""),
            at in selected.lost,
            not run.unusable,
            everywhere.get(at, frozenset()),
        )
        for at, (run, label) in enumerate(named)
    ]
    return SelectedRuns(runs, silent_folds(collection))


def of_frame(frame: pd.DataFrame) -> SelectedRuns:
    """The runs of a frame of :func:`dgbench.results`, or of a part of its lines."""
    runs = []
    for _, own in frame.groupby(["run", "folder"], sort=False):
        who = identity_of(own.iloc[0].to_dict())
        rows = own.loc[own["subset"] == "test", list(_NEEDED)].to_dict("records")
        for row in rows:
            row["accuracy"] = 1 - row["wrong"] / row["seen"]
        label, folder = str(who.pop("label")), str(who.pop("folder"))
        environments = frozenset(row["env"] for row in rows if who["fold"] == FULL)
        runs.append(SelectedRun(who, label, folder, rows, environments=environments))  # type: ignore[arg-type]
    return SelectedRuns(runs, partial=True)


def _environments_of_full(collection: Collection) -> dict[int, frozenset[str]]:
    """Run on all given environments -> every environment in which it was tested, at any step."""
    full = [at for at, run in enumerate(collection.runs) if run.identity["fold"] == FULL]
    rows = collection.rows[collection.rows["run"].isin(full) & (collection.rows["subset"] == "test")]
    found = rows[["run", "env"]].drop_duplicates().astype({"env": str}).groupby("run")["env"].agg(frozenset)
    return {int(run): own for run, own in found.items()}  # type: ignore[call-overload]


def identity_of(line: Mapping[Any, Any]) -> dict[str, Any]:
    """The identity that a line of a frame spells in columns: ``variant.ratio`` goes back into ``variant``."""
    identity: dict[str, Any] = {"variant": {}, "hparams": {}}
    for name, value in line.items():
        key, _, inner = str(name).partition(".")
        missing = isinstance(value, float) and value != value
        if inner:
            if not missing:
                identity[key][inner] = _whole(value)
        else:
            identity[key] = None if missing else _listed(_whole(value))
    return identity


def _whole(value: Any) -> Any:
    """What a column of numbers made of whole ones where some line has none: 3.0 is 3 again."""
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def silent_folds(collection: Collection) -> dict[Path, dict[str, str]]:
    """Study folder -> fold -> why that fold has no rows, for runs that stopped before their first evaluation."""
    found: dict[Path, dict[str, str]] = {}
    for folder in collection.without_rows:
        fold = fold_of(folder)
        if fold is not None:
            failed = folder.status == "FAILED"
            why = f"failed: {folder.reason}" if failed else "unfinished, no rows yet"
            found.setdefault(folder.path.parent, {})[fold] = why
    return found


#: what tells the networks of trained runs apart, and says nothing of a model that was only evaluated
_NETWORK = keys(Role.NETWORK)
PLACE = keys(Role.DATA | Role.PROTOCOL | Role.FOLDS)

Identity = Mapping[str, Any]


def beside_trained(identities: Sequence[Identity]) -> list[tuple[int, Identity]]:
    """Number and identity of every run, those of an evaluated model once for every kind of network in its place.

    Args:
        identities: of trained and evaluated runs.
    """
    if all(identity["backbone"] != EVALUATED for identity in identities):
        return list(enumerate(identities))
    networks: dict[str, dict[str, dict[str, str]]] = {}
    for identity in identities:
        if identity["backbone"] != EVALUATED:
            own = {key: identity[key] for key in _NETWORK}
            networks.setdefault(_place(identity), {})[json.dumps(own)] = own
    found: list[tuple[int, Identity]] = []
    for number, identity in enumerate(identities):
        known = networks.get(_place(identity)) if identity["backbone"] == EVALUATED else None
        found += [(number, {**identity, **own}) for own in known.values()] if known else [(number, identity)]
    return found


def _place(identity: Identity) -> str:
    return identity_key(identity, PLACE)

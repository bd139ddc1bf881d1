"""Runs at their selected steps, from a collection or a frame of :func:`dgbench.results`: what tables are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.plan.folds import FULL
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import fold_of
from dgbench.reports.settings.apply_selection import Selected
from dgbench.selection.methods import Rows

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

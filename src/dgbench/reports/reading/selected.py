"""Runs at the step and draw that a selection chose, and their ``test`` rows: what every table is
made of.

They come from a collection or from the rows of one study; of a frame, see
:mod:`dgbench.reports.frames`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dgbench.analysis.draws import UncountedRuns, choose_draws
from dgbench.analysis.evaluations import RunKey, accuracies_of, records_of
from dgbench.analysis.selection import CHOSEN, Selection
from dgbench.errors import ConfigError, RecordError
from dgbench.plan.folds import FULL, tested
from dgbench.records.rows import LATER_COUNTS
from dgbench.records.run_identity import (
    EVALUATED,
    NOT_ADAPTED,
    Role,
    identity_key,
    identity_keys,
    keys,
)
from dgbench.reports.labels import adaptation_text, algorithm_labels, algorithm_name, is_adapted
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.row_files import IDENTITY_KEYS, Run

if TYPE_CHECKING:
    from dgbench.reports.published import Published

Identity = Mapping[str, Any]


@dataclass(frozen=True)
class SelectedRun:
    """One run and what a selection decided for it."""

    identity: Identity  #: the fields of :class:`~dgbench.records.run_identity.RunIdentity`
    label: str  #: the algorithm as tables name it
    folder: str
    step: int = -1  #: the step whose errors count, -1 where there is none
    #: validation accuracy that speaks for it, NaN where there is none
    accuracy: float = float("nan")
    reason: str = ""  #: why it does not count; empty if it does
    not_chosen: bool = False  #: it does not count because another draw of its search was chosen
    finished: bool = True  #: it was trained to its end
    #: in which it has ``test`` rows, at any step; of ``full`` folds alone
    environments: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Selected:
    """All runs of a report, and the long frame that its tables are made of.

    ``tests`` has one line per run with a step and environment that it is tested in: ``run``
    (position in ``runs``), ``algorithm`` (as tables name it), ``seed``, ``fold``, ``role``
    (``held_out``, or ``everywhere`` of the run trained on all given environments), ``env``,
    ``env_held_out``, ``error`` and ``accuracy`` (fractions), ``images``, ``majority_error`` (of the
    most frequent class of the run's training images, a fraction; NaN where rows do not say it); in
    the order in which the rows were written.
    """

    runs: Sequence[SelectedRun]
    tests: pd.DataFrame
    #: study folder -> fold without rows -> why
    folds_without_rows: Mapping[Path, Mapping[str, str]] = field(default_factory=dict)
    partial: bool = False  #: runs that do not count may not be among them
    published: Sequence[Published] = ()  #: tables of means, in place of runs
    problems: Sequence[Problem] = ()  #: of a table of others: what was assumed and left out


def check_key(split_by: str | None) -> None:
    """Check that ``split_by`` is None or an identity key.

    Raises:
        ConfigError: it is no identity key.
    """
    if split_by is not None and split_by not in IDENTITY_KEYS:
        raise ConfigError(
            f"split_by={split_by} is no identity key; choose one of {', '.join(IDENTITY_KEYS)}"
        )


def no_seeds(published: Sequence[Published]) -> RecordError:
    """Build the error that says why a table of means has no runs."""
    return RecordError(
        f"{published[0].source} holds means with standard errors and no seeds, of which there are "
        "leaderboards alone; use report=leaderboard (dgbench.reports.leaderboard), or give a line "
        "for each seed"
    )


@dataclass(frozen=True, eq=False)
class NamedRuns:
    """What selections and tables call the runs of a collection, in their order."""

    keys: Sequence[RunKey]
    labels: Sequence[str]  #: the algorithms as tables name them


def name_runs(
    collection: Collection,
    *,
    searches: bool,
    adaptation_chosen: bool = False,
    split_by: str | None = None,
) -> NamedRuns:
    """Name the runs of a collection.

    Args:
        collection: what was collected.
        searches: draws of hyperparameters are chosen among, so they share a label.
        adaptation_chosen: methods of adaptation are chosen among, so they share a label, too.
        split_by: one more identity key whose values are kept apart.

    Raises:
        ConfigError: ``split_by`` is no identity key.
    """
    check_key(split_by)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    # of runs that judge one another, or are draws of one search
    names = keys(Role.DATA | Role.NETWORK, split_by)
    for index, key in enumerate(identity_keys([run.identity for run in collection.runs], names)):
        groups[key].append(index)
    tuples = _Tuples()
    labels = [""] * len(collection.runs)
    run_keys: list[RunKey] = [RunKey("")] * len(collection.runs)
    for group, indices in groups.items():
        identities = [collection.runs[index].identity for index in indices]
        named_as: Sequence[Identity] = identities
        if adaptation_chosen:
            named_as = _with_adaptation_chosen(identities)
        named = algorithm_labels(named_as, searches=searches)
        for index, label, identity in zip(indices, named, identities, strict=True):
            labels[index] = label
            run_keys[index] = RunKey(
                (group, label),
                tuples.of(identity["given"]),
                frozenset(identity["held_out"]),
                identity["seed"],
                identity["draw"],
                identity["protocol"],
                adaptation_text(identity),
            )
    return NamedRuns(run_keys, labels)


def select_runs(
    collection: Collection,
    selection: Selection,
    split_by: str | None = None,
    named: NamedRuns | None = None,
) -> Selected:
    """Choose a step of every finished run and a draw of every search.

    Args:
        collection: what was collected.
        selection: the method.
        split_by: one more identity key whose values are kept apart.
        named: its runs as :func:`name_runs` names them, where several methods choose among them.

    Raises:
        ConfigError: ``split_by`` is no identity key.
    """
    if named is None:
        named = name_runs(
            collection,
            searches=selection.chooses_draws,
            adaptation_chosen=selection.adaptation == CHOSEN,
            split_by=split_by,
        )
    rows = finished_rows(collection)
    choices = selection.choose(records_of(rows, named.keys))
    for index, run in enumerate(collection.runs):
        if run.unusable:
            choices.reason[index] = run.unusable
            choices.steps[index] = -1
    draws = (
        choose_draws(named.keys, choices, selection) if selection.chooses_draws else UncountedRuns()
    )
    reasons = {**choices.reason, **draws.stuck, **draws.lost}
    everywhere = _environments_of_full(collection)
    decided = zip(
        collection.runs,
        named.labels,
        choices.steps.tolist(),
        choices.accuracy.tolist(),
        strict=True,
    )
    runs = [
        SelectedRun(
            run.identity,
            label,
            run.folder,
            step,
            accuracy,
            reasons.get(index, ""),
            index in draws.lost,
            not run.unusable,
            everywhere.get(index, frozenset()),
        )
        for index, (run, label, step, accuracy) in enumerate(decided)
    ]
    at_step = rows["step"].to_numpy() == choices.steps[rows["run"].to_numpy()]
    return Selected(runs, tests_of(runs, rows, at_step), _folds_without_rows(collection))


def _with_adaptation_chosen(identities: Sequence[Identity]) -> list[Identity]:
    """Give the runs of each algorithm that has adapted ones one name, ``erm (adaptation=chosen)``.

    Runs that do not adapt are among them.
    """
    plain_names = [
        algorithm_name({**identity, "adaptation": NOT_ADAPTED}) for identity in identities
    ]
    adapted = set()
    for identity, name in zip(identities, plain_names, strict=True):
        if is_adapted(identity):
            adapted.add(name)
    renamed: list[Identity] = []
    for identity, name in zip(identities, plain_names, strict=True):
        changes = {"adaptation": CHOSEN} if name in adapted else {}
        renamed.append({**identity, **changes})
    return renamed


class _Tuples:
    """Tuples of lists that many runs share, each made once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[str, ...]] = {}

    def of(self, names: list[str]) -> tuple[str, ...]:
        """Return the names as a tuple; the list must live as long as this object."""
        if id(names) not in self._made:
            self._made[id(names)] = tuple(names)
        return self._made[id(names)]


def select_study(
    rows: Sequence[Mapping[str, Any]], selection: Selection, unusable: Mapping[str, str]
) -> Selected:
    """Select the runs of one study and the step of each.

    Args:
        rows: as :func:`dgbench.records.rows.read_rows` gives them, of any subset of its folds.
        selection: chooses the step of each run.
        unusable: fold -> why its errors must not be used, even where there are rows.
    """
    folds = list(dict.fromkeys(row["fold"] for row in rows))
    number_of = {fold: number for number, fold in enumerate(folds)}
    first = {row["fold"]: row for row in reversed(rows)}
    runs = []
    for fold in folds:
        identity = {key: first[fold][key] for key in IDENTITY_KEYS}
        runs.append(Run(fold, identity, "DONE", "", 0, 0))
    names = ["step", "env", "subset", "env_held_out", "seen", "wrong", *LATER_COUNTS]
    columns: dict[str, list[Any]] = {"run": [number_of[row["fold"]] for row in rows]}
    for name in names:
        columns[name] = [row.get(name) for row in rows]
    frame = pd.DataFrame(columns)
    frame = frame.astype(
        {"env": "category", "subset": "category", **dict.fromkeys(LATER_COUNTS, "float64")}
    )
    selected = select_runs(Collection(runs, frame, [], []), selection)
    without_rows = {fold: reason for fold, reason in unusable.items() if fold not in number_of}
    named = [replace(run, reason=unusable.get(run.folder, run.reason)) for run in selected.runs]
    return replace(selected, runs=named, folds_without_rows={Path(): without_rows})


def finished_rows(collection: Collection) -> pd.DataFrame:
    """Return the rows of the runs that finished and lack no row."""
    usable = np.array([not run.unusable for run in collection.runs], dtype=bool)
    return (
        collection.rows
        if usable.all()
        else collection.rows[usable[collection.rows["run"].to_numpy()]]
    )


def in_environments(rows: pd.DataFrame, environments: Sequence[Iterable[str]]) -> NDArray[np.bool_]:
    """Mark the rows whose environment is among those of their run.

    Args:
        rows: with ``run`` and ``env``.
        environments: of every run.
    """
    env = rows["env"].astype("category").cat
    codes = {str(name): code for code, name in enumerate(env.categories)}
    pairs = [np.zeros(0, dtype=np.int64)]  # run and environment as one number
    for run, names in enumerate(environments):
        known = [codes[name] for name in names if name in codes]
        pairs.append(run * len(codes) + np.array(known, dtype=np.int64))
    place = rows["run"].to_numpy(dtype=np.int64) * len(codes) + env.codes.to_numpy()
    return np.isin(place, np.concatenate(pairs))


def name_column(names: NDArray[np.object_]) -> pd.Series[Any]:
    """Make a column that keeps names as Python's strings: Arrow's make tables ten times slower.

    pandas 3 converts a plain array of strings.
    """
    return pd.Series(names, dtype=object, copy=False)


def tests_of(
    runs: Sequence[SelectedRun], rows: pd.DataFrame, at_step: NDArray[np.bool_] | None = None
) -> pd.DataFrame:
    """Build the ``tests`` of :class:`Selected`.

    Args:
        runs: all of them.
        rows: of these runs.
        at_step: marks those at chosen steps; None: all are.
    """
    is_test = (rows["subset"] == "test").to_numpy()
    rows = rows[is_test if at_step is None else is_test & at_step]
    everywhere = rows["env"].drop_duplicates().map(str).tolist()
    tested_in = []
    for run in runs:
        is_full = run.identity["fold"] == FULL
        tested_in.append(everywhere if is_full else tested(run.identity))
    counted = in_environments(rows, tested_in)
    rows = rows if counted.all() else rows[counted]
    numbers = rows["run"].to_numpy()

    majority = (
        rows["majority_wrong"].to_numpy(dtype="float64") if "majority_wrong" in rows else np.nan
    )

    def of_run(values: Iterable[Any]) -> NDArray[Any]:
        per_line: NDArray[Any] = np.array([*values], dtype=object)[numbers]
        return per_line

    return pd.DataFrame(
        {
            "run": numbers,
            "algorithm": name_column(of_run(run.label for run in runs)),
            "seed": of_run(run.identity["seed"] for run in runs).astype("int64"),
            "fold": name_column(of_run(run.identity["fold"] for run in runs)),
            "role": name_column(of_run(_role(run) for run in runs)),
            "env": name_column(rows["env"].astype(object).to_numpy()),
            "env_held_out": rows["env_held_out"].to_numpy(),
            "error": np.asarray(
                rows["wrong"].to_numpy() / rows["seen"].to_numpy(), dtype=np.float64
            ),
            "accuracy": accuracies_of(rows),
            "images": rows["seen"].to_numpy(),
            "majority_error": majority / rows["seen"].to_numpy(),
        },
        copy=False,
    )


def _role(run: SelectedRun) -> str:
    """Name what the environments are for a run that it is tested in."""
    return "everywhere" if run.identity["fold"] == FULL else "held_out"


def _environments_of_full(collection: Collection) -> dict[int, frozenset[str]]:
    """Map each run on all given environments to every environment in which it was tested, at any
    step.
    """
    rows = collection.rows
    is_full = np.array([run.identity["fold"] == FULL for run in collection.runs], dtype=bool)
    counted = is_full[rows["run"].to_numpy()] & (rows["subset"] == "test").to_numpy()
    env = rows["env"].astype("category").cat
    names = list(map(str, env.categories))
    pairs = (
        rows["run"].to_numpy(dtype=np.int64)[counted] * len(names) + env.codes.to_numpy()[counted]
    )
    numbers, codes = np.divmod(np.unique(pairs), max(1, len(names)))
    runs, starts = np.unique(numbers, return_index=True)
    sets: dict[bytes, frozenset[str]] = {}  # most runs share theirs
    environments = {}
    for run, start, end in zip(runs.tolist(), starts, [*starts[1:], len(codes)], strict=False):
        of_run = codes[start:end]
        key = of_run.tobytes()
        if key not in sets:
            sets[key] = frozenset(names[code] for code in of_run.tolist())
        environments[run] = sets[key]
    return environments


def _folds_without_rows(collection: Collection) -> dict[Path, dict[str, str]]:
    """Map study folder -> fold -> why that fold has no rows, for runs that stopped before their
    first evaluation.
    """
    reasons: dict[Path, dict[str, str]] = {}
    for folder in collection.without_rows:
        if folder.fold is not None:
            failed = folder.status == "FAILED"
            reason = f"failed: {folder.reason}" if failed else "unfinished, no rows yet"
            reasons.setdefault(folder.path.parent, {})[folder.fold] = reason
    return reasons


#: what tells the networks of trained runs apart, and says nothing of a model that was only
#: evaluated
_NETWORK = keys(Role.NETWORK)
_PLACE = keys(Role.DATA | Role.PROTOCOL | Role.FOLDS)


def once_per_network(identities: Sequence[Identity]) -> list[tuple[int, Identity]]:
    """Enumerate identities, that of an evaluated model once for every kind of network trained in
    its setting.

    Models that dgbench did not train stand in every table of the environments that they were
    evaluated in.

    Args:
        identities: of trained and evaluated runs.
    """
    if all(identity["backbone"] != EVALUATED for identity in identities):
        return list(enumerate(identities))
    networks: dict[str, dict[str, dict[str, str]]] = {}
    for identity in identities:
        if identity["backbone"] != EVALUATED:
            network = {key: identity[key] for key in _NETWORK}
            networks.setdefault(identity_key(identity, _PLACE), {})[json.dumps(network)] = network
    numbered: list[tuple[int, Identity]] = []
    for number, identity in enumerate(identities):
        evaluated = identity["backbone"] == EVALUATED
        trained = networks.get(identity_key(identity, _PLACE)) if evaluated else None
        numbered += (
            [(number, {**identity, **network}) for network in trained.values()]
            if trained
            else [(number, identity)]
        )
    return numbered

"""Applies a selection to everything that was collected: the step of each run, and the draw of each search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.reading.collect import Collection
from dgbench.reports.settings.labels import algorithm_labels
from dgbench.selection.columns import Records, RunKey
from dgbench.selection.draws import Draws, choose_draws
from dgbench.selection.methods import Selection

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

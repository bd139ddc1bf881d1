"""How much a result depends on the epoch, the seed and an oracle (Zhang et al. 2023, section 5.4 and Table 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgbench.measures.accuracy_summary import mean, spread
from dgbench.protocols.folds import tested
from dgbench.protocols.selection_records import MemberKey, first_best, scores
from dgbench.reports.collect import Collection
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.leaderboard_cells import Board, DatasetCells
from dgbench.reports.selected import Selected, finished_rows, records_of

Place = tuple[int, frozenset[str]]


@dataclass(frozen=True)
class TestCurves:
    """Mean test accuracy over a run's tested environments at each of its evaluations."""

    latest: dict[int, list[float]]  #: run that counts -> its last evaluations
    chosen: dict[int, float]  #: run that counts -> at the chosen step
    best: list[float]  #: run -> highest of all evaluations, NaN where there is none


def test_curves(collection: Collection, selected: Selected, unreported: Sequence[str], epochs: int) -> TestCurves:
    """Read the curves off the rows.

    Args:
        collection: what was collected.
        selected: the steps and draws that count.
        unreported: validation environments.
        epochs: how many of the last evaluations to keep.
    """
    table = finished_rows(collection)
    records = records_of(table, [MemberKey("")] * len(collection.runs))
    reported = np.zeros((len(collection.runs), len(records.environments)), dtype=bool)
    for index, member in enumerate(collection.runs):
        names = set(tested(member.identity)) - set(unreported)
        reported[index] = [env in names for env in records.environments]
    rows = records.of_subset("test") & reported[records.member, records.env]
    found = scores(records.member[rows], records.step[rows], records.accuracy[rows], records.environments_of(rows))
    _, best = first_best(found, len(collection.runs))
    starts = np.searchsorted(found.member, np.arange(len(collection.runs) + 1))
    latest, chosen = {}, {}
    for run in selected.rows:
        steps = found.step[starts[run] : starts[run + 1]]
        values = found.value[starts[run] : starts[run + 1]].tolist()
        latest[run] = values[-epochs:]
        for value in np.asarray(values)[steps == selected.steps[run]].tolist():
            chosen[run] = value
    return TestCurves(latest, chosen, best.tolist())


def variance_table(
    board: Board,
    titles: Sequence[str],
    collection: Collection,
    selected: Selected,
    curves: TestCurves,
    epochs: int,
    how: str,
) -> Table:
    """Per dataset: standard deviation over the last evaluations, over seeds, and the gain of an oracle, in points."""
    columns = [Column("algorithm")]
    for title in titles:
        columns += [
            Column(
                f"{title} epoch", "points", f"standard deviation over the last {epochs} evaluations, mean over runs"
            ),
            Column(f"{title} seed", "points", "standard deviation of the average over seeds, divisor n-1"),
            Column(f"{title} gap", "points", "best evaluation of any draw by test accuracy less the selected one"),
        ]
    bests = [_best_by_place(cells, collection, selected, curves) for cells in board.datasets]
    body = []
    for algorithm in board.algorithms:
        line = [Cell(algorithm)]
        for cells, best in zip(board.datasets, bests, strict=True):
            runs = [run for of_seed in cells.runs.get(algorithm, {}).values() for run in of_seed]
            line += [
                _epochs(runs, curves),
                _seeds(cells, algorithm),
                _gap(runs, collection, curves, best.get(algorithm, {})),
            ]
        body.append(line)
    notes = [
        f"In percentage points. epoch: the last {epochs} evaluations of a run, divisor n-1, mean over runs; seed: "
        "divisor n-1; gap: what choosing step and draw by test accuracy itself would gain (Zhang et al. 2023, Table 4)."
    ]
    return Table("variance", f"Variance over epochs and seeds, and the oracle gap ({how})", columns, body, notes, True)


def _best_by_place(
    cells: DatasetCells, collection: Collection, selected: Selected, curves: TestCurves
) -> dict[str, dict[Place, float]]:
    """algorithm -> (seed, held-out environments) -> the best evaluation of any draw."""
    same = {run: None for of in cells.runs.values() for runs in of.values() for run in runs}
    if not same:
        return {}
    keys = (
        "dataset",
        "variant",
        "base",
        "evaluation",
        "data_seed",
        "split_seed",
        "given",
        "backbone",
        "init",
        "tuning",
    )
    shared = [collection.runs[next(iter(same))].identity[key] for key in keys]
    found: dict[str, dict[Place, float]] = defaultdict(dict)
    for index, run in enumerate(collection.runs):
        value = curves.best[index]
        if not np.isnan(value) and [run.identity[key] for key in keys] == shared:
            of_label, place = found[selected.labels[index]], _place(run.identity)
            of_label[place] = max(value, of_label.get(place, value))
    return found


def _epochs(runs: Sequence[int], curves: TestCurves) -> Cell:
    spreads = [spread(curves.latest[run], "standard_deviation") for run in runs if curves.latest[run]]
    known = [value for value in spreads if value is not None]
    return Cell(mean(known), n=len(known)) if known else Cell(reason="fewer than 2 evaluations a run")


def _seeds(cells: DatasetCells, algorithm: str) -> Cell:
    values = list(cells.averages(algorithm).values())
    deviation = spread(values, "standard_deviation") if values else None
    return Cell(reason="fewer than 2 whole seeds") if deviation is None else Cell(deviation, n=len(values))


def _gap(runs: Sequence[int], collection: Collection, curves: TestCurves, best: Mapping[Place, float]) -> Cell:
    gains = []
    for run in runs:
        place = _place(collection.runs[run].identity)
        if run in curves.chosen and place in best:
            gains.append(best[place] - curves.chosen[run])
    return Cell(mean(gains), n=len(gains)) if gains else Cell(reason="no finished run")


def _place(identity: Mapping[str, Any]) -> Place:
    return identity["seed"], frozenset(tested(identity))

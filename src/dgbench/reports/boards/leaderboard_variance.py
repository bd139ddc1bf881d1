"""How much a result depends on the epoch, the seed and an oracle (Zhang et al. 2023, section 5.4 and Table 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.protocols.folds import tested
from dgbench.records.rows import Role, identity_key, keys
from dgbench.reports.boards.board_values import averages, lines_of
from dgbench.reports.boards.boards import Board
from dgbench.reports.frames import Column, Table, entry, table
from dgbench.reports.reading.collect import Collection
from dgbench.reports.settings.apply_selection import Selected, finished_rows, records_of
from dgbench.reports.settings.measure_tables import ALGORITHM
from dgbench.reports.settings.over_seeds import mean, standard_deviation
from dgbench.reports.settings.study_values import algorithms_of
from dgbench.selection.columns import RunKey, first_best, scores

#: what runs share among which an oracle may choose; other folds and protocols may test in the same environments
_SEARCH = keys(Role.DATA | Role.NETWORK)


def test_curves(collection: Collection, selected: Selected, unreported: Sequence[str], epochs: int) -> pd.DataFrame:
    """How the mean test accuracy over a run's tested environments changes over its evaluations.

    Args:
        collection: what was collected.
        selected: the steps and draws that count.
        unreported: environments that chose among models.
        epochs: how many of the last evaluations make ``deviation``.

    Returns:
        One line per run that counts: ``run`` (hash), ``folder``, ``deviation`` (standard deviation over its last
        evaluations, divisor n-1), ``gap`` (highest accuracy of any evaluation of any draw with the same seed and
        tested environments, less that at the selected step). Fractions; NaN where there is none.
    """
    rows = finished_rows(collection)
    records = records_of(rows, [RunKey("")] * len(collection.runs))
    reported = np.zeros((len(collection.runs), len(records.environments)), dtype=bool)
    for at, run in enumerate(collection.runs):
        names = set(tested(run.identity)) - set(unreported)
        reported[at] = [env in names for env in records.environments]
    kept = records.of_subset("test") & reported[records.run, records.env]
    found = scores(records.run[kept], records.step[kept], records.accuracy[kept], records.environments_of(kept))
    _, best = first_best(found, len(collection.runs))
    starts = np.searchsorted(found.run, np.arange(len(collection.runs) + 1))
    lines: list[dict[str, Any]] = []
    for at, run in enumerate(collection.runs):
        steps, curve = found.step[starts[at] : starts[at + 1]], found.value[starts[at] : starts[at + 1]]
        chosen = curve[steps == selected.steps[at]]
        held_out = ", ".join(sorted(tested(run.identity)))
        lines.append(
            {
                "run": run.identity["run"],
                "folder": run.folder,
                "place": (
                    identity_key(run.identity, _SEARCH),
                    selected.labels[at],
                    run.identity["seed"],
                    held_out,
                ),
                "best": best[at],
                "selected": chosen[-1] if len(chosen) else np.nan,
                "deviation": standard_deviation(curve[-epochs:].tolist()),
                "counts": at in selected.rows,
            }
        )
    curves = pd.DataFrame(lines).astype({"best": "float64", "selected": "float64", "deviation": "float64"})
    curves["gap"] = curves.groupby("place")["best"].transform("max") - curves["selected"]
    return curves.loc[curves["counts"], ["run", "folder", "deviation", "gap"]]


def variance_table(board: Board, curves: pd.DataFrame, epochs: int) -> Table:
    """Per dataset: standard deviation over the last evaluations, over seeds, and the gain of an oracle, in points.

    Args:
        board: of :func:`~dgbench.reports.boards.boards.boards`.
        curves: of :func:`test_curves`.
        epochs: how many of the last evaluations they took.
    """
    last = f"standard deviation over the last {epochs} evaluations, mean over runs"
    helps = {
        "epoch": last,
        "seed": "standard deviation of the average accuracy over seeds, divisor n-1",
        "gap": "best evaluation of any draw by test accuracy less the selected one",
    }
    runs = board.runs.merge(curves, on=["run", "folder"])
    names = algorithms_of(board.accuracies)
    lines: list[dict[str, Any]] = [{"algorithm": name} for name in names]
    columns = [ALGORITHM]
    for dataset in board.datasets:
        own, over_seeds = runs[runs["dataset"] == dataset.title], averages(lines_of(board, dataset))
        for line in lines:
            here = own[own["algorithm"] == line["algorithm"]]
            line |= _mean(f"{dataset.title} epoch", here["deviation"], "fewer than 2 evaluations a run")
            line |= _deviation(f"{dataset.title} seed", list(over_seeds.get(line["algorithm"], {}).values()))
            line |= _mean(f"{dataset.title} gap", here["gap"], "no finished run")
        columns += [Column(f"{dataset.title} {kind}", unit="points", help=text) for kind, text in helps.items()]
    notes = [
        f"In percentage points of accuracy. epoch: the last {epochs} evaluations of a run, divisor n-1, mean over "
        "runs; seed: divisor n-1; gap: what choosing step and draw by test accuracy itself would gain (Zhang et al. "
        "2023, Table 4)."
    ]
    title = "Variance over epochs and seeds, and the oracle gap"
    return table(lines, "variance", title, columns, notes, detail=True)


def _mean(name: str, values: pd.Series[float], reason: str) -> dict[str, Any]:
    known = values.dropna().tolist()
    return entry(name, mean(known), n=len(known)) if known else entry(name, reason=reason)


def _deviation(name: str, values: list[float]) -> dict[str, Any]:
    deviation = standard_deviation(values)
    if deviation is None:
        return entry(name, reason="fewer than 2 whole seeds")
    return entry(name, deviation, n=len(values))

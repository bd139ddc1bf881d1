"""How much a result depends on the epoch, the seed and an oracle.

Source: Zhang et al. 2023, section 5.4, Table 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dgbench.analysis.accuracy import mean
from dgbench.analysis.evaluations import RunKey, first_best, records_of, scores
from dgbench.plan.folds import tested
from dgbench.records.run_identity import Role, identity_key, keys
from dgbench.reports.measuring.tables import ALGORITHM
from dgbench.reports.over_seeds import line_values, standard_deviation
from dgbench.reports.published import published
from dgbench.reports.published.beside import PERCENT, published_cell, published_column
from dgbench.reports.ranking.leaderboards import Leaderboard
from dgbench.reports.reading.collect import Collection
from dgbench.reports.reading.selected import Selected, finished_rows, in_environments
from dgbench.reports.tables import Column, Table, entry, table

#: what runs share among which an oracle may choose; other folds and protocols may test in the same
#: environments
_SEARCH = keys(Role.DATA | Role.NETWORK)


def test_curves(
    collection: Collection, selected: Selected, unreported: Sequence[str], epochs: int
) -> pd.DataFrame:
    """Compute how the mean test accuracy over a run's tested environments changes over its
    evaluations.

    Args:
        collection: what was collected.
        selected: the steps and draws that count.
        unreported: environments that chose among models.
        epochs: how many of the last evaluations make ``deviation``.

    Returns:
        One line per run that counts: ``run`` (hash), ``folder``, ``deviation`` (standard deviation
        over its last evaluations, divisor n-1), ``gap`` (highest accuracy of any evaluation of any
        draw with the same seed and tested environments, less that at the selected step). Fractions;
        NaN where there is none.
    """
    rows = finished_rows(collection)
    records = records_of(rows, [RunKey("")] * len(collection.runs))
    reported = [set(tested(run.identity)) - set(unreported) for run in collection.runs]
    mask = records.of_subset("test") & in_environments(rows, reported)
    accuracies = scores(
        records.run[mask], records.step[mask], records.accuracy[mask], records.environments_of(mask)
    )
    _, best = first_best(accuracies, len(collection.runs))
    starts = np.searchsorted(accuracies.run, np.arange(len(collection.runs) + 1))
    lines: list[dict[str, Any]] = []
    for pos, run in enumerate(collection.runs):
        steps, curve = (
            accuracies.step[starts[pos] : starts[pos + 1]],
            accuracies.value[starts[pos] : starts[pos + 1]],
        )
        chosen = curve[steps == selected.runs[pos].step]
        held_out = ", ".join(sorted(tested(run.identity)))
        lines.append(
            {
                "run": run.identity["run"],
                "folder": run.folder,
                "place": (
                    identity_key(run.identity, _SEARCH),
                    selected.runs[pos].label,
                    run.identity["seed"],
                    held_out,
                ),
                "best": best[pos],
                "selected": chosen[-1] if len(chosen) else np.nan,
                "deviation": standard_deviation(curve[-epochs:].tolist()),
                "counts": not selected.runs[pos].reason,
            }
        )
    curves = pd.DataFrame(lines).astype(
        {"best": "float64", "selected": "float64", "deviation": "float64"}
    )
    curves["gap"] = curves.groupby("place")["best"].transform("max") - curves["selected"]
    return curves.loc[curves["counts"], ["run", "folder", "deviation", "gap"]]


def variance_table(leaderboard: Leaderboard, curves: pd.DataFrame, epochs: int) -> Table:
    """List per dataset std over the last evaluations, std over seeds and gain of an oracle, beside
    published ones.

    Args:
        curves: of :func:`test_curves`.
        epochs: how many of the last evaluations they took.
    """
    last = f"standard deviation over the last {epochs} evaluations, mean over runs"
    helps = {
        "epoch": last,
        "seed": "standard deviation of the average accuracy over seeds, divisor n-1",
        "gap": "best evaluation of any draw by test accuracy less the selected one",
    }
    runs = leaderboard.runs.merge(curves, on=["run", "folder"])
    names, theirs = leaderboard.algorithms, published("zhang2023_table4")
    lines: list[dict[str, Any]] = [{"algorithm": name} for name in names]
    columns = [ALGORITHM]
    for dataset in leaderboard.datasets:
        dataset_runs = runs[runs["dataset"] == dataset.title]
        no_runs = dataset_runs.iloc[:0]
        runs_of = dict(iter(dataset_runs.groupby("algorithm")))
        for line in lines:
            algorithm_runs = runs_of.get(line["algorithm"], no_runs)
            accuracies = line_values(dataset.averages, line["algorithm"])
            deviation = standard_deviation(accuracies)
            n = len(accuracies) if len(accuracies) > 1 else None
            line |= _mean(
                f"{dataset.title} epoch",
                algorithm_runs["deviation"],
                "fewer than 2 evaluations a run",
            )
            line |= entry(
                f"{dataset.title} seed", deviation, n=n, reason="fewer than 2 whole seeds"
            )
            line |= _mean(f"{dataset.title} gap", algorithm_runs["gap"], "no finished run")
            printed = theirs.values.get(line["algorithm"], {})
            for kind in helps:
                value = printed.get(f"{dataset.identity['dataset']}_{kind}")
                if value:
                    name = f"{dataset.title} {kind} published"
                    line |= published_cell(name, value, unit=PERCENT)
        for kind, text in helps.items():
            name = f"{dataset.title} {kind}"
            columns.append(Column(name, unit="points", help=text))
            if any(f"{name} published" in line for line in lines):
                columns.append(published_column(name, name, "points", theirs.source))
    notes = [
        (
            f"In percentage points of accuracy. epoch: the last {epochs} evaluations of a run, "
            "divisor n-1, mean over runs; seed: divisor n-1; gap: what choosing step and draw by "
            "test accuracy itself would gain (Zhang et al. 2023, Table 4)."
        )
    ]
    title = "Variance over epochs and seeds, and the oracle gap"
    return table(lines, "variance", title, columns, notes, detail=True)


def _mean(name: str, values: pd.Series[float], reason: str) -> dict[str, Any]:
    defined = values.dropna().tolist()
    return entry(name, mean(defined), n=len(defined)) if defined else entry(name, reason=reason)

"""The runs behind every cell of a leaderboard: step, draw and hyperparameters that a selection chose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.protocols.folds import tested
from dgbench.reports.choices import hparams_text
from dgbench.reports.collect import Collection
from dgbench.reports.document import Cell, Column, Table
from dgbench.reports.leaderboard_cells import Board
from dgbench.reports.selected import Selected


def chosen_table(board: Board, titles: Sequence[str], collection: Collection, selected: Selected, how: str) -> Table:
    """One line per model that counts."""
    columns = [
        Column("algorithm"),
        Column("dataset", key=True),
        Column("seed", "count", key=True),
        Column("trial", "count", "repetition of the search", key=True),
        Column("held out", key=True),
        Column("draw", "count", "number of the hyperparameter draw, 0 is the default set"),
        Column("step", "count", "optimizer updates done at the chosen evaluation"),
        Column("validation (%)", "percent", "validation accuracy that spoke for it"),
        Column("test (%)", "percent", "mean accuracy over the held-out environments"),
        Column("hyperparameters"),
        Column("run", help="hash in the name of its folder; report=reproduce run=HASH prints its command"),
    ]
    body = []
    for algorithm in board.algorithms:
        for title, cells in zip(titles, board.datasets, strict=True):
            for seed, runs in sorted(cells.runs.get(algorithm, {}).items()):
                for run in runs:
                    identity = collection.runs[run].identity
                    line = [Cell(algorithm), Cell(title), Cell(float(seed)), Cell(float(identity["trial"]))]
                    body.append(line + _choice(run, identity, selected, cells.environments))
    note = "Every cell above is made of these models alone; report=hparams prints them with all candidates."
    return Table("chosen", f"Chosen steps and hyperparameters ({how})", columns, body, [note], detail=True)


def _choice(run: int, identity: Mapping[str, Any], selected: Selected, environments: Sequence[str]) -> list[Cell]:
    held_out = [env for env in tested(identity) if env in environments]
    tests = [row["accuracy"] for row in selected.rows[run] if row["env"] in held_out]
    accuracy = selected.accuracy[run]
    return [
        Cell(", ".join(held_out)),
        Cell(float(identity["draw"])),
        Cell(float(selected.steps[run])),
        Cell(reason="the method has no accuracy") if math.isnan(accuracy) else Cell(accuracy),
        Cell(math.fsum(tests) / len(tests)) if tests else Cell(reason="no test row"),
        Cell(hparams_text(identity["hparams"]) or None),
        Cell(identity["run"]),
    ]

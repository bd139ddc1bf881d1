"""The table that ends ``dgbench evaluate averaging=wise_ft``: errors at each alpha."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from dgbench.data.description import with_base
from dgbench.records.run_identity import RunIdentity
from dgbench.records.spec import digest
from dgbench.reports.render.formats import plain_table
from dgbench.reports.tables import Column, table
from dgbench.trained.wise_ft import PARTS


def mixture_tables(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Format the errors of runs mixed with their initial weights, a line for each alpha.

    Args:
        rows: of all mixtures (``averaging=wise_ft``), of any number of runs.
    """
    grids: dict[str, dict[float, list[Mapping[str, Any]]]] = {}
    for row in rows:
        grid = grids.setdefault(_mixed_run(row), {})
        grid.setdefault(row["hparams"]["averaging.alpha"], []).append(row)
    return [_mixture_table(grid) for grid in grids.values()]


def _mixed_run(row: Mapping[str, Any]) -> str:
    """Name the run and the initial weights that a row's mixture is made of."""
    hparams = {key: value for key, value in row["hparams"].items() if key != "averaging.alpha"}
    names = [item.name for item in fields(RunIdentity)]
    identity = {name: row[name] for name in names if name not in ("run", "draw")}
    return digest({**identity, "hparams": hparams, "draw": (row["draw"] - 1) // (PARTS + 1)})


def _mixture_table(grid: Mapping[float, Sequence[Mapping[str, Any]]]) -> str:
    """Format the errors of one run's mixtures."""
    lines = []
    for alpha, rows in sorted(grid.items()):
        validation = [row for row in rows if row["subset"] == "val" and not row["env_held_out"]]
        tests = [row for row in rows if row["subset"] == "test" and row["env"] in row["held_out"]]
        line = {
            "alpha": f"{alpha:.2f}",
            "validation": _error(validation),
            "held_out": _error(tests),
        }
        lines.append(line)
    columns = [
        Column("alpha", key=True),
        Column("validation", "training environments, val", "percent"),
        Column("held_out", "held out", "percent"),
    ]
    row = next(iter(grid.values()))[0]
    dataset = with_base(row["dataset"], row["base"])
    initial = row["hparams"]["averaging.initial"]
    title = f"{dataset} {row['algorithm']} seed {row['seed']} fold {row['fold']}, from {initial}"
    return plain_table(table(lines, "mixtures", title, columns, []))


def _error(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Average the errors of rows, or return None if there are none."""
    if not rows:
        return None
    errors = [float(row["wrong"] / row["seen"]) for row in rows]
    return sum(errors) / len(errors)

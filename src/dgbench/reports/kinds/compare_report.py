"""``report=compare``: two archives, folders or code versions, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dgbench.analysis import MEASURES
from dgbench.analysis.accuracy import mean
from dgbench.analysis.selection import Selection, describe
from dgbench.errors import ConfigError, RecordError
from dgbench.reports.document import Document, Section, leads, problem_table, warnings
from dgbench.reports.evaluation import Evaluation, evaluate
from dgbench.reports.labels import slug
from dgbench.reports.measuring.tables import FORMULAS
from dgbench.reports.reading.collect import Collection, code_parts, collect
from dgbench.reports.reading.folders import Problem
from dgbench.reports.reading.selected import select_runs
from dgbench.reports.tables import Column, Table, table

#: what makes a cell of errors and one of measures
ERROR_CELL = ("setting", "algorithm", "seed", "role", "env")
MEASURE_CELL = ("setting", "algorithm", "seed")
TOLERANCE = 1e-12  # errors that differ by less are equal: sums in another order


@dataclass(frozen=True)
class CompareReport:
    """Compares every error and measure that two sides share, and names what one of them lacks.

    Args:
        first, second: an archive, a folder, or a code version among ``runs``.
        runs: folders and archives searched where a side is a code version.
        name: names the output folder.
    """

    first: str | None = None
    second: str | None = None
    runs: Sequence[str] = ()
    name: str = "compare"
    reads_itself = True

    def __call__(self, collection: Collection | None, selection: Selection, split_by: str | None = None) -> Document:
        if not self.first or not self.second:
            raise ConfigError(
                "report=compare needs report.first=PLACE and report.second=PLACE: archive, folder or code"
            )
        sides = [self._side(str(place)) for place in (self.first, self.second)]
        first, second = (_evaluated(side, selection) for side in sides)
        errors = side_by_side(first.errors, second.errors, ERROR_CELL, ["error"])
        studies = side_by_side(first.studies, second.studies, MEASURE_CELL, list(MEASURES))
        problems = [problem for side in sides for problem in side.problems] + _lacking(errors, self.first, self.second)
        both = errors[errors["side"] == "both"]
        if not len(both):
            raise RecordError(f"{self.first} and {self.second} share no cell: other datasets, settings or algorithms")
        sections = []
        for title, own in both.groupby("setting", sort=False):
            of_setting = studies[(studies["setting"] == title) & (studies["side"] == "both")]
            tables = [difference_of_measures(of_setting), difference_of_errors(own), differing_cells(own)]
            sections.append(Section(slug(str(title)), str(title), tables, answer=[_answer(own)]))
        return Document(
            title=f"{self.first} against {self.second}",
            selection=describe(selection),
            sections=sections,
            problems=problem_table(problems),
            warnings=warnings(selection, False),
            lead=leads(f"{len(both)} cells that both sides have; differences are second less first", problems),
        )

    def _side(self, place: str) -> Collection:
        if Path(place).exists():
            return collect([place])
        whole = collect(self.runs, repeated=True)
        versions = sorted({version for run in whole.runs for version in code_parts(run.identity["code"])})
        if place not in versions:
            raise ConfigError(
                f"{place} is neither a file or folder nor a code version under {', '.join(map(str, self.runs))}; "
                f"versions: {', '.join(versions)}"
            )
        kept = [at for at, run in enumerate(whole.runs) if place in code_parts(run.identity["code"])]
        rows = whole.rows[whole.rows["run"].isin(kept)]
        position = {old: new for new, old in enumerate(kept)}
        rows = rows.assign(run=rows["run"].map(position).astype("int32"))
        return replace(whole, runs=[whole.runs[at] for at in kept], rows=rows)


def _evaluated(side: Collection, selection: Selection) -> Evaluation:
    # what differs may be the code, so it must not keep cells apart
    runs = [replace(run, identity={**run.identity, "code": "any"}) for run in side.runs]
    same = replace(side, runs=runs)
    return evaluate(select_runs(same, selection))


def side_by_side(first: pd.DataFrame, second: pd.DataFrame, cell: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """The values of both sides and their differences, one line per cell that either has.

    Args:
        first, second: frames with the columns ``cell`` and ``values``.
        cell: what names a cell.
        values: columns that are compared.

    Returns:
        ``cell``, for each value ``NAME.first``, ``NAME.second`` and ``NAME`` (second less first), and ``side``: both,
        first or second.
    """
    known = [side[[*cell, *values]].dropna(subset=list(values), how="all") for side in (first, second)]
    made = known[0].merge(known[1], on=list(cell), how="outer", suffixes=(".first", ".second"), indicator="side")
    made["side"] = made["side"].astype(str).map({"both": "both", "left_only": "first", "right_only": "second"})
    for name in values:
        made[name] = made[f"{name}.second"] - made[f"{name}.first"]
    return made


def difference_of_errors(cells: pd.DataFrame) -> Table:
    """One line per algorithm: how many errors are equal, and by how much the others differ."""
    lines = []
    for algorithm, own in cells.groupby("algorithm", sort=True):
        gaps = own["error"].abs()
        lines.append(
            {
                "algorithm": algorithm,
                "cells": len(own),
                "equal": int((gaps <= TOLERANCE).sum()),
                "mean": mean(own["error"].tolist()),
                "largest": float(gaps.max()),
                "where": _place(own.iloc[int(gaps.to_numpy().argmax())]) if gaps.max() > TOLERANCE else "",
            }
        )
    columns = [
        Column("algorithm", key=True),
        Column("cells", unit="count", help="errors that both sides have"),
        Column("equal", unit="count"),
        Column("mean", "mean difference", "points", "second less first"),
        Column("largest", "largest difference", "points", "in size"),
        Column("where"),
    ]
    return table(lines, "differences", "Errors, second less first", columns)


def difference_of_measures(cells: pd.DataFrame) -> Table:
    """One line per algorithm and measure: its mean over the seeds of both sides, and the difference."""
    lines = []
    for algorithm, own in cells.groupby("algorithm", sort=True):
        for name, title in MEASURES.items():
            known = own.dropna(subset=[name])
            if len(known):
                first, second = (mean(known[f"{name}.{side}"].tolist()) for side in ("first", "second"))
                gap = float(known[name].abs().max())
                line = {"algorithm": algorithm, "measure": title, "first": first, "second": second}
                lines.append(line | {"difference": second - first, "largest": gap, "seeds": len(known)})
    columns = [
        Column("algorithm", key=True),
        Column("measure", key=True),
        Column("first", unit="percent"),
        Column("second", unit="percent"),
        Column("difference", unit="points", help="second less first, of the means over the seeds that both have"),
        Column("largest", "largest of a seed", "points"),
        Column("seeds", unit="count"),
    ]
    notes = [f"{title}: {FORMULAS[name]}." for name, title in MEASURES.items()]
    return table(lines, "measures", "Measures, mean over the seeds of both sides", columns, notes)


def differing_cells(cells: pd.DataFrame) -> Table:
    """Every error that differs, the largest difference first."""
    own = cells[cells["error"].abs() > TOLERANCE]
    own = own.reindex(own["error"].abs().sort_values(ascending=False, kind="stable").index)
    columns = [
        *(Column(name, key=True) for name in ERROR_CELL[1:]),
        Column("error.first", "first", "percent"),
        Column("error.second", "second", "percent"),
        Column("error", "difference", "points"),
    ]
    return table(own, "cells", "Every error that differs", columns, detail=True)


def _answer(cells: pd.DataFrame) -> str:
    gaps = cells["error"].abs()
    differ = int((gaps > TOLERANCE).sum())
    if not differ:
        return f"All {len(cells)} errors are equal."
    worst = cells.iloc[int(gaps.to_numpy().argmax())]
    return (
        f"{len(cells) - differ} of {len(cells)} errors are equal; the others differ by "
        f"{100 * gaps[gaps > TOLERANCE].mean():.3g} points on average and by at most {100 * gaps.max():.3g} "
        f"({worst['algorithm']}, {_place(worst)})."
    )


def _place(cell: pd.Series[Any]) -> str:
    role = "held out" if cell["role"] == "held_out" else "of the model of all given ones"
    return f"seed {cell['seed']}, {cell['env']} {role}"


def _lacking(errors: pd.DataFrame, first: str, second: str) -> list[Problem]:
    """What one side has alone, by algorithm."""
    problems = []
    for side, other in (("first", second), ("second", first)):
        alone = errors[errors["side"] == side]
        for (setting, algorithm), own in alone.groupby(["setting", "algorithm"], sort=True):
            problems.append(
                Problem("one side only", f"{setting}, {algorithm}", f"{len(own)} errors are not in {other}")
            )
    return problems

"""``report=measures``: which algorithm is best, by which measure, and how far each measure can be trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dgbench.protocols.selection import Selection, describe
from dgbench.reports.collect import Collection
from dgbench.reports.comparisons import SECTION_KEYS, Comparison, compare, variant_text
from dgbench.reports.curves import error_curves
from dgbench.reports.document import Cell, Column, Document, Section, Table
from dgbench.reports.folders import Problem
from dgbench.reports.measure_tables import (
    correlation_table,
    held_out_table,
    measure_table,
    seed_table,
    selection_table,
)


@dataclass(frozen=True)
class MeasuresReport:
    """Builds the measure report.

    Args:
        name: names the output folder.
    """

    name: str = "measures"

    def __call__(self, collection: Collection, selection: Selection, split_by: str | None = None) -> Document:
        comparisons, problems = compare(collection, selection, split_by)
        problems = [*collection.problems, *problems]
        how = describe(selection)
        titles = [_describe(comparison.identity)[0] for comparison in comparisons]
        # equal titles differ in what stands in the facts, such as the given environments
        numbered = [t if titles.count(t) == 1 else f"{t} #{titles[: i + 1].count(t)}" for i, t in enumerate(titles)]
        sections = [_section(comparison, title, how) for comparison, title in zip(comparisons, numbered, strict=True)]
        used = sum(not run.unusable for run in collection.runs)
        lead = [
            f"{used} finished runs in {len(sections)} comparison{'s' * (len(sections) != 1)}; {how}.",
            f"{len(problems)} problem{'s' * (len(problems) != 1)}, listed at the end." if problems else "No problems.",
        ]
        return Document("Measures of domain generalization", lead, sections, problem_table(problems))


def problem_table(problems: Sequence[Problem]) -> Table:
    """Everything that was left out, and why."""
    columns = [Column("problem"), Column("where"), Column("reason")]
    rows = [[Cell(problem.kind), Cell(problem.where), Cell(problem.reason)] for problem in problems]
    notes = [] if rows else ["Nothing was left out: every run found is finished and in the tables above."]
    return Table("problems", "Runs and rows left out, and what is missing", columns, rows, notes)


def _section(comparison: Comparison, title: str, how: str) -> Section:
    _, facts = _describe(comparison.identity)
    name = re.sub(r"[^a-z0-9.]+", "_", title.lower()).strip("_")
    tables = [
        table(comparison, how)
        for table in (measure_table, held_out_table, selection_table, correlation_table, seed_table)
    ]
    figure = error_curves(comparison, f"curves_{name}", how)
    return Section(name, title, facts, tables, [figure] if figure else [])


def _describe(identity: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    extra = {key: str(value) for key, value in identity.items() if key not in SECTION_KEYS}
    seeds = f"data {identity['data_seed']}, split {identity['split_seed']}"
    facts = [
        ("given environments", ", ".join(map(str, identity["given"]))),
        ("base images", identity["base"]),
        ("errors", identity["evaluation"]),
        ("network", f"{identity['backbone']}, {identity['init']} init, {identity['tuning']}"),
        ("protocol", identity["protocol"]),
        ("dataset seeds", seeds),
        *extra.items(),
    ]
    parts = [variant_text(identity), identity["base"], identity["evaluation"]]
    return ", ".join([*parts, identity["backbone"], *extra.values()]), facts
